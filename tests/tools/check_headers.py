#!/usr/bin/env python3
"""What the public headers say of each function: check_headers.py INCLUDE_FOLDER

Every function stands under a comment of its own, or right behind another one that does (a family of the same kind); one that
can fail says with which status; one that hands out memory says who frees it; a size or a time says its unit, in its name or
beside it.  Prints what is missing, exits 1."""
import re
import sys
import pathlib

bad = 0


def complain(header, line, text):
    global bad
    bad += 1
    print('%s:%d: %s' % (header, line, text))


def declarations(text):
    """(line, comment above, declaration) of each OOM_API; a comment is handed on to what follows it without a blank line."""
    lines, comment, i = text.split('\n'), '', 0
    while i < len(lines):
        line = lines[i]
        if line.lstrip().startswith('/*'):
            begin = i
            while '*/' not in lines[i]:
                i += 1
            comment = '\n'.join(lines[begin:i + 1])
        elif line.startswith('OOM_API'):
            begin = i
            while ';' not in lines[i]:
                i += 1
            yield begin + 1, comment, ' '.join(x.strip() for x in lines[begin:i + 1])
        elif not line.strip():
            comment = ''
        i += 1


def check(path):
    text = path.read_text()
    head = text[:text.index('#ifndef')]
    if not head.startswith('/*') or len(head) < 40:
        complain(path.name, 1, 'does not begin by saying what it is about')
    for line, comment, what in declarations(text):
        name = re.search(r'(\w+)\(', what).group(1)
        if not comment:
            complain(path.name, line, name + ' has no comment')
            continue
        if re.match(r'OOM_API enum oom_status ', what) and 'struct oom_error' in what:
            # one of a family that was told once, in this comment or in the header's own
            if not re.search(r'OOM_ERR_|status|refus|fail|error', comment + head, re.I):
                complain(path.name, line, name + ' can fail, and its comment does not say how')
        if re.match(r'OOM_API (struct \w+ \*)', what) and 'const' not in what.split('(')[0]:
            if not re.search(r'free|release|borrow|own', comment + text, re.I):
                complain(path.name, line, name + ' hands out memory, and nothing says whose it is')
    # fields and results in bytes, seconds and the like carry their unit
    for number, line in enumerate(text.split('\n'), 1):
        m = re.match(r'\t(?:uint64_t|double) (\w+)(?:;|,)', line)
        if m and re.search(r'^(size|memory|capacity|duration|time|speed|bandwidth)$', m.group(1)):
            complain(path.name, number, m.group(1) + ': of which unit?')


for header in sorted(pathlib.Path(sys.argv[1]).glob('*.h')):
    check(header)
sys.exit(bad > 0)
