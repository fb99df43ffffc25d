#!/usr/bin/env python3
"""Looks for every option that the answers name in the sources of the program it belongs to.

usage: check_words.py FOLDER

FOLDER holds git directories or work trees called owner+name (a bare repository may lie in owner+name/repo); a
dialect's sources are the repositories in its column `checked`. Prints what is found nowhere, and which repositories
are not there. The words themselves are read from planner/diagnose/dialect_*.c.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROW = re.compile(r'\{"([^"]+)", (?:"([^"]*)"|NULL), "([^"]*)", "([^"]*)",\n\t \.say = \{(.*?)\}(?:, \.\w+ = [^}]*)?\},', re.S)
WORD = re.compile(r'L\((\w+)\) = ((?:"(?:[^"\\]|\\.)*"\s*)+)')
# options and calls: long options, names with underscores, environment variables
TOKEN = re.compile(r'--[a-z][a-z0-9-_]+|[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+|[A-Z]{2,}_[A-Z_]+')
# of PyTorch, the shell, or the machine, in everybody's words
COMMON = {'nvidia_smi', 'shm_size', '--shm-size', '--ipc', 'max_split_size_mb', 'expandable_segments', 'empty_cache',
          'PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'garbage_collection_threshold', 'npu_smi', 'max_memory'}


def repository(folder, name):
    for path in (os.path.join(folder, name.replace('/', '+'), 'repo'), os.path.join(folder, name.replace('/', '+'))):
        if os.path.isdir(path):
            return path
    return None


def holds(path, token):
    if os.path.exists(os.path.join(path, 'HEAD')) or os.path.exists(os.path.join(path, '.git')):
        bare = ['git', '--git-dir=' + path] if os.path.exists(os.path.join(path, 'HEAD')) else ['git', '-C', path]
        return subprocess.run(bare + ['grep', '-q', '-I', '-F', '-e', token, 'HEAD'], check=False,
                              stderr=subprocess.DEVNULL).returncode == 0
    return subprocess.run(['grep', '-rqIF', '-e', token, path], check=False).returncode == 0


def main():
    folder, missing, looked = sys.argv[1], 0, 0
    for part in ('training', 'fields', 'serving', 'drawing', 'runtimes'):
        text = open(os.path.join(HERE, '../../planner/diagnose/dialect_%s.c' % part)).read()
        for name, _, _, checked, body in ROW.findall(text):
            paths = [(r, repository(folder, r.split('@')[0])) for r in checked.split(', ') if r]
            for r, p in paths:
                if not p:
                    print('%s: %s is not there' % (name, r))
            paths = [p for _, p in paths if p]
            if not paths:
                continue
            for lever, said in WORD.findall(body):
                for token in sorted(set(TOKEN.findall(said.replace('\\"', '"')))):
                    if token in COMMON:
                        continue
                    looked += 1
                    # options are spelled with either line, in sources without their dashes
                    forms = {token, token.lstrip('-'), token.lstrip('-').replace('-', '_')}
                    if not any(holds(p, f) for p in paths for f in forms):
                        print('%s %s: %s is found nowhere' % (name, lever, token))
                        missing += 1
    print('%d words looked for, %d found nowhere' % (looked, missing))
    return missing != 0


if __name__ == '__main__':
    sys.exit(main())
