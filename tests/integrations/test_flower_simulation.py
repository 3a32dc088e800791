"""Real simulations of Flower: what leaves the clients under each policy, and the example app."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One thread, nothing reported to anybody, and a home that goes away."""
    return os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "OMP_NUM_THREADS": "1",
        "FLWR_HOME": str(tmp_path),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def test_what_leaves_four_clients(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/integrations/simulated_app.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    replies = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"policy"')
    ]
    sent = {reply["policy"]: reply for reply in replies if reply["error"] is None}
    assert (sent["log"]["readable"], sent["log"]["certified"]) == (4, 4)
    assert (sent["guard"]["readable"], sent["guard"]["certified"]) == (0, 0)
    # The client that refuses and the one whose check fails send nothing, not even why.
    assert sent.keys() == {"log", "guard"}
    errors = [reply["error"] for reply in replies if reply["error"] is not None]
    assert errors == [[6, "gradpeel: this client sends no update", False]] * 2


def _command(name: str) -> str:
    """A command of the environment that runs the tests."""
    return str(Path(sys.executable).parent / name)


@contextmanager
def _superlink(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The server that `flwr run` would start and leave behind: ours, and ours to stop."""
    ports = []
    for _ in range(2):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            ports.append(str(taken.getsockname()[1]))
    process = subprocess.Popen(
        [
            *(
                _command("flower-superlink"),
                "--insecure",
                "--simulation",
                "--isolation",
                "subprocess",
            ),
            *("--disable-runtime-dependency-installation", "--host", "127.0.0.1"),
            *("--port", ports[0], "--control-api-address", f"127.0.0.1:{ports[1]}"),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    names = ("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT")
    try:
        yield environment | dict(zip(names, ports, strict=True))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def test_the_example_runs(environment: dict[str, str]) -> None:
    with _superlink(environment) as running:
        done = subprocess.run(
            [_command("flwr"), "run", ".", "--stream", "--federation-config", "num-supernodes=4"],
            cwd=ROOT / "examples" / "flower",
            env=running,
            capture_output=True,
            text=True,
            check=True,
            timeout=500,
        )
    rows = re.findall(r"^\| 1 \| \d+ \| 8 \| (\d+) \| .* \| (.*) \|$", done.stdout, re.MULTILINE)
    assert rows == [("8", "the whole batch")] * 4, done.stdout + done.stderr
