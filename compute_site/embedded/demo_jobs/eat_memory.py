"""Take memory until the sandbox stops it: the job ends as out_of_memory, and nobody else notices."""

STEP_MIB = 16
LIMIT_MIB = 8192  # A sandbox without a limit must not take the machine with it.

taken: list[bytes] = []
while len(taken) * STEP_MIB < LIMIT_MIB:
    taken.append(b"\x01" * (STEP_MIB << 20))
    print(f"holding {len(taken) * STEP_MIB} MiB", flush=True)
print("nobody stopped me", flush=True)
