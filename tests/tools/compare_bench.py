#!/usr/bin/env python3
"""compare_bench.py BEFORE.json AFTER.json [SHARE]: two files that tests/bench/bench wrote, figure by figure.

Exit status 1 if one is worse by more than SHARE (0.1: a tenth), 2 if the files cannot be compared."""
import json
import sys


def read(path):
    try:
        with open(path) as f:
            data = json.load(f)
    except (OSError, ValueError) as error:
        give_up(f"{path}: {error}")
    if data.get("schema") != "oomplan-bench/1":
        give_up(f"{path}: not written by tests/bench/bench")
    return {f["name"]: f for f in data["figures"]}


def give_up(words):
    print(words, file=sys.stderr)
    sys.exit(2)


def main():
    if len(sys.argv) < 3:
        give_up(__doc__)
    before, after = read(sys.argv[1]), read(sys.argv[2])
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.1
    worse = 0
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            print(f"{name:48} only in {'the second' if name in after else 'the first'}")
            continue
        a, b = before[name], after[name]
        better_up = b["unit"].endswith("per s")
        ratio = b["value"] / a["value"] if a["value"] else float("inf")
        change = 1 / ratio if better_up else ratio
        word = "worse" if change > 1 + share else "better" if change < 1 / (1 + share) else ""
        worse += word == "worse"
        aim = b["aim"]
        missed = aim and (b["value"] < aim if better_up else b["value"] > aim)
        print(f"{name:48} {a['value']:12.3f} -> {b['value']:12.3f} {b['unit']:12} {ratio:6.2f} {word:6}"
              f"{f'  aim {aim:g} missed' if missed else ''}")
    sys.exit(1 if worse else 0)


main()
