"""Never end: the job is stopped at its max_duration and ends as time_limit."""

import itertools
import time

for second in itertools.count():
    print(f"still here after {second} s", flush=True)
    time.sleep(1)
