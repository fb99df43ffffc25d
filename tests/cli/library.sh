#!/bin/sh
# The program of the reference's chapter on the library, built as its readers do: library.sh SOURCE BUILD CC CXX
#
# With the flags that pkg-config gives: from C and C++, against the shared library and the static one.  What it says is
# what the command says, and a name that nobody knows is a message.
set -eu
source=$1
build=$2
cc=$3
cxx=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "library.sh: $*" >&2; exit 1; }

awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/planner/README.md" >"$work/fits.c"
cp "$work/fits.c" "$work/fits.cc"
# as installed, but for where the library and its headers lie
mkdir "$work/pc"
sed -e "s|^includedir=.*|includedir=$source/include|; s|^libdir=.*|libdir=$build|" "$build/meson-private/oomplan.pc" >"$work/pc/oomplan.pc"
PKG_CONFIG_PATH=$work/pc${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs oomplan)
static=$(pkg-config --static --libs oomplan | sed "s|-loomplan|$build/liboomplan.a|")

$cc -std=c11 -Wall -Wextra -pedantic -Werror "$work/fits.c" $flags -o "$work/c" || fail "C does not build"
$cxx -std=c++11 -Wall -pedantic -Werror "$work/fits.cc" $flags -o "$work/cc" || fail "C++ does not build"
$cc "$work/fits.c" $(pkg-config --cflags oomplan) $static -o "$work/static" || fail "the static library does not link from C"

said=$("$build/planner/cli/oomplan" estimate --model GPT-2 --gpu T4 --micro-batch 2 --json |
	sed 's/.*"used_bytes": \([0-9]*\).*/\1/')
for way in c cc static; do
	seen=$(LD_LIBRARY_PATH=$build "$work/$way" GPT-2 T4) || fail "$way: $seen"
	case $seen in
	"fits: $said bytes used as asked, the plan: "*) ;;
	*) fail "$way: \"$seen\", the command says $said" ;;
	esac
	if seen=$(LD_LIBRARY_PATH=$build "$work/$way" nosuch T4 2>&1); then
		fail "$way: no error"
	fi
	case $seen in
	"nosuch: no such file"*) ;;
	*) fail "$way: \"$seen\"" ;;
	esac
done
