"""The command line of Compute Site."""
