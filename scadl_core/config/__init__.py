"""From what a person typed to checked objects: find the app, compose, check, build."""
