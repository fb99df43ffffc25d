#!/bin/sh
# rooms.sh SOURCE: fails when a file of models/ includes a header of a room above its own (one does: the choices of the
# optimizer knob are the rows of step/optimizers.c), and when a family goes round the rules of its folder.  Rooms from
# the ground up:
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
# A family names its values (tape/frame.h) and counts no references: the tape's own calls for that stay below it.
if grep -rnE --include='*.[ch]' 'oom_(keep|drop|drop_shared|done|share|hold|release)\(' families; then
	echo '  references are counted by hand: families/README.md says what a name is'
	bad=1
fi
# What a model type does differently is a field of its kind, so that the next type can have it too; a family's settings
# are a struct of its own.
if grep -rnE --include='*.[ch]' 'strn?cmp\(a->model_type|strstr\(a->model_type|extra\[' families; then
	echo '  a model type is asked for by name, or settings have no names'
	bad=1
fi
# The same for the towers of compositions: a row of tower_types.c, or a function of the composition's own.
if grep -rnE --include='*.[ch]' 'str(n?cmp|str)\((type,|([a-z]+->)?(v|vlm)->[^,]*type)|OOM_TOWER_' families/towers; then
	echo '  a tower asks for a type by name'
	bad=1
fi
exit $bad
