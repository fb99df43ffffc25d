#!/bin/sh
# statics.sh NM LIBRARY: fails when an object of the library lies in a section that is written at run time.
# (.data.rel.ro is written by the loader only: constant tables of pointers; so is DW.ref.*, a pointer of C++ exceptions.  What is thread-local is shared by nobody.)
"$1" --format=sysv "$2" 2>/dev/null | awk -F'|' '
	$4 ~ /OBJECT/ { objects++ }
	$4 ~ /OBJECT/ && ($7 ~ /\.(data|bss)/ || $7 ~ /COM/) && $7 !~ /\.data\.rel\.ro|DW\.ref\./ {
		printf "writable: %s in %s\n", $1, $7
		bad++
	}
	END { exit bad ? 1 : objects ? 0 : 77 }'
