// What an expert takes away: the samples as a table, and the command that repeats the audit.
"use strict";
(() => {
  const { page, make } = gradpeel;

  // One flat row per sample: no pixels, no features.
  function rows() {
    return page.samples.map(({ certificate, original, recovered, values, found, label, mistaken, ...sample }) => ({
      ...sample,
      ...(page.with_samples ? { label, mistaken } : {}),
      neuron: certificate?.neuron ?? null,
      equations: certificate?.equations ?? null,
      evidence_digits: certificate?.score ?? null,
      residual: certificate?.residual ?? null,
      estimated_error: certificate?.estimate ?? null,
      evidence: certificate?.evidence.join("; ") ?? null,
    }));
  }
  // A name that begins like a formula must not become one in a spreadsheet.
  function cell(value) {
    const text = value === null ? "" : typeof value === "string" ? value.replace(/^[=+\-@\t\r]/, "'$&") : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function csv() {
    const all = rows(), names = Object.keys(all[0]);
    return [names.join(","), ...all.map((row) => names.map((name) => cell(row[name])).join(","))].join("\n") + "\n";
  }
  const json = () => `${JSON.stringify(rows(), null, 1)}\n`;

  function save(text, type, ending) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: address, download: `gradpeel-samples.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
  document.getElementById("download-csv").addEventListener("click", () => save(csv(), "text/csv", "csv"));
  document.getElementById("download-json").addEventListener("click", () => save(json(), "application/json", "json"));

  const copy = document.getElementById("copy"), command = document.getElementById("command");
  copy?.addEventListener("click", async () => {
    // Some frames have no clipboard: then the command is selected, ready for the usual keys.
    getSelection().selectAllChildren(command);
    const done = await (navigator.clipboard?.writeText(command.textContent).then(() => true, () => false) ?? false);
    copy.textContent = done ? "Copied" : "Selected";
    setTimeout(() => (copy.textContent = "Copy command"), 2000);
  });
})();
