#!/bin/sh
# calls.sh NM LIBRARY: fails when an object of a room of models/ refers to a symbol that a room above its own defines.  What lies
# in models/ itself (rank_engines.c) is the table above all rooms: it may name every room, and every room may ask it.  One room
# asks upwards and may: the words of the knobs engine and optimizer are the rows of step/engines.c and step/optimizers.c.
[ -f "$2" ] || exit 2
"$1" -A -g "$2" 2>/dev/null | awk '
BEGIN {
	n = split("plan config tape ops blocks families step megatron", order, " ")
	for (i = 1; i <= n; i++) floor[order[i]] = i
	allowed["plan oom_optimizer_choice"] = allowed["plan oom_engine_at"] = 1
}
{
	if (!match($0, /models_[a-z_0-9]*\.c\.o/)) next
	split(substr($0, RSTART + 7, RLENGTH - 7), part, "_")
	room = part[1]
	if (!(room in floor)) next              # models_rank_engines.c.o: the table
	symbol = $NF
	if ($(NF - 1) == "U") { used[room " " symbol] = 1; rooms[room] = 1 }
	else home[symbol] = room
}
END {
	for (r in rooms) seen++
	if (seen < 6) { print "objects of only " seen + 0 " rooms were found"; exit 2 }
	for (u in used) {
		split(u, x, " ")
		if (x[2] in home && floor[home[x[2]]] > floor[x[1]] && !(u in allowed)) {
			print "points up: " x[1] " -> " home[x[2]] " (" x[2] ")"
			bad = 1
		}
	}
	exit bad
}'
