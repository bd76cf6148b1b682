"""The REST API: shape in, shape out; every rule lives in the rooms below."""
