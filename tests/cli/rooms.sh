#!/bin/sh
# rooms.sh SOURCE: fails when a file of models/ includes a header of a room above its own (one does: the choices of the
# optimizer knob are the rows of step/optimizers.c).  Rooms from the ground up:
order='plan config tape ops blocks families step megatron'
cd "$1/models" || exit 2
above=$order
bad=0
for room in $order; do
	above=${above#"$room"}
	above=${above# }
	for higher in $above; do
		if grep -rn --include='*.[ch]' "#include \"$higher/" "$room" | grep -v '^plan/knobs.c:.*"step/optimizers.h"'; then
			echo "  points up: $room -> $higher"
			bad=1
		fi
	done
done
exit $bad
