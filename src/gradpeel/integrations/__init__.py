"""gradpeel inside other people's federated learning: one module per framework.

`gradpeel.integrations.flower` needs the extra `flower`, `gradpeel.integrations.nvflare` the extra
`nvflare`, `gradpeel.integrations.opacus` the extra `opacus`. Importing one of them without its
framework says what to install. None of them changes what other clients or a server do: a client
checks and defends its own update, and a server of a simulation only reads.
"""
