#!/bin/sh
# What is written to launch a plan is run: launchers.sh OOMPLAN [QUESTIONS]
#
# torchrun, srun, accelerate and tune are stand-ins that write their words down, one a line; so shells read the files as they would
# on a cluster.  Every option's words have to be those of the options' file (--emit hf-trainer or trainer), and where bash, Python or
# its yaml module are at hand, they have to accept what is theirs.
oomplan=$1
questions=${2:-8}
case $oomplan in /*) ;; *) oomplan=$PWD/$oomplan ;; esac
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
mkdir bin
for stub in torchrun accelerate tune trl; do
	printf '#!/bin/sh\nprintf "%%s\\n" %s "$@" >>"$WORDS"\n' $stub >bin/$stub
done
printf '#!/bin/sh\nexec "$@"\n' >bin/srun
printf '#!/bin/sh\nprintf "node1\\nnode2\\n"\n' >bin/scontrol
chmod +x bin/*
ln -s "$oomplan" bin/oomplan
PATH=$work/bin:$PATH
LC_ALL=C
WORDS=$work/words
HEAD=node1 SLURM_NNODES=2 SLURM_JOB_NODELIST='node[1-2]' SKYPILOT_NODE_RANK=1 SKYPILOT_NODE_IPS='10.0.0.1
10.0.0.2' DSTACK_NODE_RANK=1 DSTACK_MASTER_NODE_IP=10.0.0.1
export PATH LC_ALL WORDS HEAD SLURM_NNODES SLURM_JOB_NODELIST SKYPILOT_NODE_RANK SKYPILOT_NODE_IPS DSTACK_NODE_RANK DSTACK_MASTER_NODE_IP
python3 -c 'import ast' 2>/dev/null && python=python3
python3 -c 'import yaml' 2>/dev/null && yaml=python3
failed=0
files=0

wrong() {
	echo "$1: $2"
	failed=$((failed + 1))
}

# The words of a script that launches: what the stand-in was given, from the script or module on.
words_of() {
	: >words
	${BASH_OR_SH:-sh} "$1" >/dev/null 2>err || wrong "$3" "$2: $(cat err)"
	[ -s words ] || wrong "$3" "$2 launches nothing"
}

draw() {
	awk -v n="$questions" '
		function next_of(list, a, k) { k = split(list, a, ";"); s = (s * 69069 + 1) % 4294967296; return a[1 + int(s / 65536) % k] }
		BEGIN {
			s = 5
			for (i = 0; i < n; i++)
				print "--model " next_of("Llama-3.2-1B;GPT-2;Qwen2.5-7B"), "--gpu A100-SXM4-80GB --loss " next_of("sft;fused"),
					next_of("--gpus 1;--gpus 2 --engine fsdp2 --zero 3;--gpus 16 --nodes 2 --engine deepspeed --zero 3;--gpus 16 --nodes 2"),
					"--precision " next_of("amp-bf16;bf16-amp --lora-r 16;bf16-amp --lora-r 8 --qlora"),
					next_of(";--grad-ckpt full;--allocator expandable_segments;--optimizer adamw-8bit"),
					"--micro-batch " next_of("1;2"), "--seq-len 512"
		}'
}

bash -c : 2>/dev/null && BASH_OR_SH=bash
draw >drawn
while read -r question; do
	# shellcheck disable=SC2086  # words of a command line
	for format in torchrun slurm skypilot dstack python trl accelerate; do
		oomplan plan $question --emit "$format:out" --overwrite >/dev/null 2>&1
		[ $? -le 1 ] && [ -s out ] || { wrong "$question" "$format writes nothing"; continue; }
		files=$((files + 1))
		case $format in
		torchrun | slurm)
			${BASH_OR_SH:-sh} -n out 2>err || wrong "$question" "$format: $(cat err)"
			words_of out "$format" "$question"
			;;
		skypilot | dstack)
			# the block behind "|" is what the machine's shell gets
			sed -n 's/^  *- |$/|/;/|$/,$p' out | sed '1d;s/^    \{0,1\}//;s/^  //' >script
			words_of script "$format" "$question"
			;;
		python)
			[ -z "$python" ] || python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' out 2>err || wrong "$question" "python: $(tail -1 err)"
			continue
			;;
		esac
		case $format in
		skypilot | dstack | trl | accelerate)
			[ -z "$yaml" ] || python3 -c 'import sys, yaml; assert isinstance(yaml.safe_load(open(sys.argv[1])), dict)' out 2>err ||
				wrong "$question" "$format: $(tail -1 err)"
			;;
		esac
		case $format in
		torchrun | slurm | skypilot | dstack) ;;
		*) continue ;;
		esac
		# the same options under every launcher; what stands before them is the launcher's own
		sed -n '/^trl\.scripts\.\|^train\.py$/,$p' words >options
		[ $format = torchrun ] && mv options first && cp words launcher && continue
		cmp -s first options || wrong "$question" "$format has other options than torchrun: $(diff first options | head -3 | tr '\n' ' ')"
	done
	grep -A1 -x -e --per_device_train_batch_size first | tail -1 | grep -q '^[0-9][0-9]*$' || wrong "$question" 'no micro-batch among the words'
	case $question in
	*'--nodes 2'*) grep -q '^node1:29500$' launcher || wrong "$question" 'the nodes do not meet' ;;
	esac
done <drawn
echo "$files files, $failed wrong; read by ${BASH_OR_SH:-sh}${python:+, Python}${yaml:+, its yaml}"
[ $failed = 0 ] && [ $files -ge $((7 * questions)) ]
