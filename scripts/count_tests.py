"""Counts test cases in meson test logs: each doctest case of a program, or the program itself. Exits 1 on a failure.

count_tests.py TESTLOG.json... [--also-passed N] [--also-failed N]
"""

import argparse
import json
import re

SUMMARY = re.compile(r"\[doctest\] test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed \|\s*(\d+) skipped")


def count(entry):
    """Passed, failed and skipped cases of one program. One that dies without a summary is one failure.

    What doctest calls skipped are the `child` cases, which other cases start as processes and answer for.
    """
    found = SUMMARY.search(entry.get("stdout", ""))
    ok = entry["result"] in ("OK", "EXPECTEDFAIL")
    if entry["result"] == "SKIP":
        return 0, 0, 1
    if not found:
        return (1, 0, 0) if ok else (0, 1, 0)
    _, passed, failed, _ = map(int, found.groups())
    return passed, failed if ok or failed else 1, 0


def count_log(path):
    """The sums of one log. One that is missing or empty is one failure: nothing was run."""
    try:
        with open(path, encoding="utf-8") as log:
            counts = [count(json.loads(line)) for line in log if line.strip()]
    except FileNotFoundError:
        counts = []
    return tuple(map(sum, zip(*counts))) if counts else (0, 1, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--also-passed", type=int, default=0)
    parser.add_argument("--also-failed", type=int, default=0)
    arguments = parser.parse_args()
    passed, failed, skipped = map(sum, zip(*(count_log(path) for path in arguments.logs)))
    passed += arguments.also_passed
    failed += arguments.also_failed
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    raise SystemExit(1 if failed else 0)


main()
