"""The program that a remote worker's owner runs. It knows the site only by HTTP, and Docker by our sandbox."""
