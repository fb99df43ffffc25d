#!/bin/sh
# One plan wherever it is told: one_plan.sh OOMPLAN SOURCE_ROOT [QUESTIONS [SEED]]
#
# Questions are drawn with a seed.  What the page's first lines, its block of the cheapest plan, its line to run, --quiet, JSON
# and the picture say of each is held against one another, and the line to run is run: it has to use what was told.
oomplan=$1
root=$2
questions=${3:-32}
seed=${4:-1}
case $oomplan in /*) ;; *) oomplan=$PWD/$oomplan ;; esac
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
ln -s "$oomplan" oomplan
PATH=$work:$PATH
LC_ALL=C
export PATH LC_ALL
unset COLUMNS NO_COLOR
failed=0
planned=0

draw() {
	awk -v seed="$seed" -v n="$questions" -v configs="$root/tests/accuracy/configs" '
		function next_of(list, a, k) { k = split(list, a, ";"); s = (s * 69069 + 1) % 4294967296; return a[1 + int(s / 65536) % k] }
		BEGIN {
			s = seed
			for (i = 0; i < n; i++)
				print "--model " next_of("Llama-3.2-1B;Llama-3.1-8B;GPT-2;Qwen2.5-7B;T5-base;BERT-large;" configs "/Mixtral-8x7B.json;" configs "/default-causal-lm-falcon.json;" configs "/Gemma-7B.json"),
					"--gpu " next_of("T4;RTX-4090;A10G;L40S;A100-SXM4-40GB;H100-SXM5-80GB;RTX-3080-10GB"),
					"--micro-batch " next_of("1;2;4;8;16"), "--grad-accum " next_of("1;1;2;4"),
					"--seq-len " next_of("256;512;512"),
					next_of(";;--gpus 2;--gpus 4;--gpus 8"),
					next_of(";--precision amp-bf16;--precision bf16-amp --lora-r 16;--precision bf16-amp --lora-r 16 --qlora;--optimizer adamw-8bit;--attn eager;--precision fp32"),
					next_of(";;;--evaluates yes --eval-batch 32;--eval-accumulation 20;--evaluates no;--allow lora;--prefer headroom")
		}'
}

# what, one word, another, the question
same() {
	[ "$2" = "$3" ] && return
	echo "$1: '$2' and '$3': $4"
	failed=$((failed + 1))
}

draw >questions
while read -r question; do
	# shellcheck disable=SC2086  # words of a command line
	{
		oomplan plan $question --plot p.svg >page 2>/dev/null
		status=$?
		oomplan plan $question -q >quiet 2>/dev/null
		same 'status of --quiet' $status $? "$question"
		oomplan plan $question --json >json 2>/dev/null
		same 'status of --json' $status $? "$question"
	}
	[ $status -gt 1 ] && continue           # not a question: knobs that exclude each other
	same 'first line' "$(head -1 page)" "$(head -1 quiet)" "$question"
	verdict=$(grep -m 1 'peak .* \(used\|wanted\) of ' page)
	used=$(echo "$verdict" | sed 's/.*peak \(.*\) [a-z]* of.*/\1/')
	same 'picture' "$(echo "$verdict" | sed 's/.*peak \([^,]*\).*/\1/')" \
		"$(grep -m 1 -o 'fits\{0,1\}: [^<]* on [^<]*' p.svg | sed 's/^fits\{0,1\}: //')" "$question"
	# of JSON's figures the second is the answer's, the first what was asked
	same 'bytes of JSON' "$used" "$(grep -o '"used_bytes": [0-9]*' json | sed -n 2p | awk '{ b = $2; split("B KiB MiB GiB TiB", unit, " ")
		for (i = 1; b >= 1024 && i < 4; i++) b /= 1024; printf((i > 1 ? "%.2f %s" : "%d %s"), b, unit[i]) }')" "$question"
	[ $status = 0 ] || continue
	planned=$((planned + 1))
	run=$(sed -n '/^to run$/{n;s/^ *//;p;q;}' page)
	same 'to run' "$run" "$(grep -o '"command": "[^"]*' json | sed 's/"command": "//')" "$question"
	oomplan estimate ${run#oomplan estimate} -q >ran 2>/dev/null || same 'exit of the line to run' 0 $? "$question"
	same 'what the line to run uses' "$used" "$(sed -n '1s/.*peak \(.*\) used of.*/\1/p' ran)" "$question"
	# every knob of it, those at their default too
	same 'knobs of the line to run' "$(grep -o '"plan": {[^}]*}' json | sed -n 2p)" \
		"$(oomplan estimate ${run#oomplan estimate} --json 2>/dev/null | grep -o '"plan": {[^}]*}')" "$question"
	case $(head -1 page) in
	*'fits with '*)
		changes=$(sed -n '1s/.*fits with \([0-9]*\) change.*/\1/p' page)
		options=$(sed -n '1s/.* changes\{0,1\}[^:]*: \(--.*\) ([^(]*$/\1/p' page)
		same 'used, in the first line' "$used" "$(sed -n '1s/.*(\([^(]*\))$/\1/p' page)" "$question"
		grep -q '^the cheapest plan' page || continue
		same 'block of the cheapest plan' "$used used, $changes change$([ "$changes" = 1 ] || echo s) $options" \
			"$(sed -n '/^the cheapest plan/{n;s/^[^,]*, //;s/\(changes\{0,1\}\).*/\1/;p;n;s/^ *//;p;q;}' page | tr '\n' ' ' | sed 's/ $//')" "$question"
		;;
	esac
done <questions
echo "$(wc -l <questions | tr -d ' ') questions, $planned plans, $failed differences"
[ "$failed" = 0 ] && [ "$planned" -ge $((questions / 3)) ]
