#!/bin/sh
# headers.sh SOURCE COMPILER...: each header compiles alone, and has a guard of its own.  Public ones have a test each
# (meson.build); these are the private ones.  A list, whose rows are included more than once with another meaning, has no
# guard: it begins with a sentence of what it lists, and nothing but its rows follows.
root=$1
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
n=0
for h in $(cd "$root" && find models planner include -name '*.h'); do
	n=$((n + 1))
	if [ "$(head -c 2 "$root/$h")" != '/*' ]; then
		echo "$h: does not begin by saying what it is about"
		bad=1
	fi
	if ! grep -q '^#ifndef OOM' "$root/$h"; then
		# nothing but rows: no include, no declaration
		if grep -qE '^#include|;$' "$root/$h"; then
			echo "$h: neither guarded nor a list"
			bad=1
		fi
		continue
	fi
	guard=$(sed -n 's/^#ifndef \(OOM[A-Z0-9_]*\)$/\1/p' "$root/$h" | head -1)
	if ! grep -q "^#define $guard\$" "$root/$h"; then
		echo "$h: its guard $guard is not defined"
		bad=1
	fi
	echo "$guard $h" >>"$tmp/guards"
	echo "#include \"$root/$h\"" >"$tmp/$(echo "$h" | tr '/' '_').c"
done
# two headers of one guard: the second would be empty where both are included
cut -d' ' -f1 "$tmp/guards" | sort | uniq -d | while read -r twice; do
	grep "^$twice " "$tmp/guards"
done >"$tmp/twice"
if [ -s "$tmp/twice" ]; then
	echo 'headers with the same guard:'
	cat "$tmp/twice"
	bad=1
fi
# those of the planner's rooms include their neighbours by their bare name
"$@" -std=c11 -D_GNU_SOURCE -fsyntax-only -I"$root/include" -I"$root/models" -I"$root/planner" -I"$root/planner/cli" \
	"$tmp"/*.c || bad=1
echo "$n headers"
[ "$n" -gt 100 ] || bad=1
exit $bad
