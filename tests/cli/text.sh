#!/bin/sh
# Text tests: text.sh OOMPLAN FILE.test [...]
#
# A file holds a line "# origin: ..." (where its expectations come from) and cases:
#
#	=== name of the case
#	needs bash              optional: skipped unless this command or file exists
#	$ oomplan list          run by sh in an empty folder, oomplan first in PATH, a terminal of 80 columns assumed
#	status 2                optional: 0 when left out
#	--- stdin               optional sections, compared byte for byte; left out means empty
#	--- stdout
#	--- stderr
#
# UPDATE=1 rewrites the files with what was seen: read the difference before committing it.
oomplan=$1
shift
case $oomplan in /*) ;; *) oomplan=$PWD/$oomplan ;; esac
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
PATH=$(dirname "$oomplan"):$PATH
# where data/ lies, for the tests that read it
source_root=$(cd "$(dirname "$0")/../.." && pwd)
export source_root
LC_ALL=C
TERM=xterm
export PATH LC_ALL TERM
unset COLUMNS NO_COLOR LANG LC_CTYPE
passed=0
failed=0
skipped=0

# Takes a file apart into $work/cases/NNN/{name,needs,cmd,status,in,out,err}.
split() {
	rm -rf "$work/cases"
	mkdir "$work/cases"
	awk -v dir="$work/cases" '
		/^=== / {
			n++; d = sprintf("%s/%03d", dir, n); system("mkdir " d)
			part = ""; print substr($0, 5) >(d "/name")
			printf "" >(d "/in"); printf "" >(d "/out"); printf "" >(d "/err"); printf "" >(d "/cmd"); next
		}
		!n { next }
		/^--- stdin$/ { part = d "/in"; next }
		/^--- stdout$/ { part = d "/out"; next }
		/^--- stderr$/ { part = d "/err"; next }
		part != "" { print >part; next }
		/^needs / { print $2 >(d "/needs"); next }
		/^status / { print $2 >(d "/status"); next }
		/^\$ / { print substr($0, 3) >(d "/cmd"); next }
		/^$/ { next }
		{ print "bad line in a test: " $0; exit 1 }' "$1"
}

# Runs one case; what was seen lies in $1/got.*
run_case() {
	mkdir "$1/dir"
	(cd "$1/dir" && sh -c "$(cat "$1/cmd")" <"$1/in" >"$1/got.out" 2>"$1/got.err")
	echo $? >"$1/got.status"
	[ -e "$1/status" ] || echo 0 >"$1/status"
	ok=1
	for part in status out err; do
		cmp -s "$1/$part" "$1/got.$part" && continue
		ok=0
		echo "FAILED: $(cat "$1/name"): $part ('<' expected, '>' seen)"
		diff "$1/$part" "$1/got.$part" | head -20
	done
	[ "$ok" = 1 ]
}

# Writes a case back, with what was seen.
rewrite() {
	echo "=== $(cat "$1/name")"
	[ -e "$1/needs" ] && sed 's/^/needs /' "$1/needs"
	sed 's/^/$ /' "$1/cmd"
	for part in status out err; do
		[ -e "$1/got.$part" ] && cp "$1/got.$part" "$1/$part"
	done
	[ -e "$1/status" ] && [ "$(cat "$1/status")" != 0 ] && sed 's/^/status /' "$1/status"
	for part in in:stdin out:stdout err:stderr; do
		[ -s "$1/${part%:*}" ] && { echo "--- ${part#*:}"; cat "$1/${part%:*}"; }
	done
	return 0
}

for file; do
	grep -q '^# origin' "$file" || { echo "FAILED: $file says nothing of its origin"; failed=$((failed + 1)); }
	split "$file" || failed=$((failed + 1))
	for c in "$work"/cases/*; do
		if [ -e "$c/needs" ] && ! [ -e "$(cat "$c/needs")" ] && ! command -v "$(cat "$c/needs")" >/dev/null; then
			skipped=$((skipped + 1))
		elif run_case "$c"; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
		fi
	done
	if [ "$UPDATE" = 1 ]; then
		{
			sed '/^=== /,$d' "$file"
			for c in "$work"/cases/*; do rewrite "$c"; done
		} >"$work/new" && cp "$work/new" "$file"
	fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
