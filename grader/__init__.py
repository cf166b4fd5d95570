"""The machinery behind the exercises; it knows no lecture by name, only the manifest."""
