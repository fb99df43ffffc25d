#!/usr/bin/env python3
"""Every key that a framework's table says its hook reads is read: check_hooks.py FRAMEWORKS_FOLDER

A row with .hook = true has neither knob nor sentence; if no code asks for its key, a file that has it is misread without a word.
A key is asked for where its name stands once more in the framework's own sources, whose names begin alike, or in those that
several share.  Rows that end in '*' stand for many keys and are left out.  Prints what nobody reads, exits 1."""
import collections
import pathlib
import re
import sys

ROW = re.compile(r'\{\s*(?:[A-Z_]+\s+)?"((?:[^"\\\n]|\\.)*)"\s*,(?:[^{}"]|"(?:[^"\\\n]|\\.)*")*?\.hook\s*=\s*true')

SHARED = {"engines.c", "settle.c", "launchers.c"}


def main():
    sources = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.[ch]")):
        sources[path.name] = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    bad = rows = 0
    for name, text in sources.items():
        own = "\n".join(t for n, t in sources.items() if n[:3] == name[:3] or n in SHARED)
        names = collections.Counter(re.findall(r"[A-Za-z0-9_.*()=-]+", own))
        for key in ROW.findall(text):
            rows += 1
            if key.startswith("@") or key.endswith("*") or names[key] > 1:
                continue
            print(f"{name}: {key}: its row says that the hook reads it, and nothing does")
            bad += 1
    if rows < 100:
        print(f"only {rows} such rows were found: the tables are written otherwise now")
        bad += 1
    sys.exit(1 if bad else 0)


main()
