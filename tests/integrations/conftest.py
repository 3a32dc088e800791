"""The simulated app is a script, which needs Flower to be imported."""

collect_ignore = ["simulated_app.py"]
