"""Doctests of a module that needs a framework which is not installed cannot be collected."""

from importlib.util import find_spec

collect_ignore = [
    f"gradpeel/integrations/{module}.py"
    for module, framework in {"flower": "flwr", "nvflare": "nvflare", "opacus": "opacus"}.items()
    if find_spec(framework) is None
]
