#include "fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 24, KEPT = 1 << 20 };

static const struct {
	const char *name, *text;
} files[] = {
	{"crash.txt", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
		      "capacity of 79.15 GiB of which 1.50 GiB is free.\n"},
	{"runs.csv", "model,micro_batch,seq_len\nGPT-2,1,128\nGPT-2,2,64\n"},
	{"run.yaml", "model_name_or_path: gpt2\nper_device_train_batch_size: 4\nmax_length: 256\nbf16: true\n"},
	{"train.py", "args = TrainingArguments(output_dir=\"out\", per_device_train_batch_size=4, bf16=True)\n"},
	{"run.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 2048\n"},
};
enum { FILES = sizeof(files) / sizeof(files[0]) };

const char *const fault_commands[] = {
	"estimate --model GPT-2 --gpu T4",
	"estimate --model GPT-2 --gpu T4 --json",
	"estimate --runs runs.csv",
	"estimate --runs runs.csv --gpu T4 --check",
	"estimate --model T5-base --predict-with-generate --json",
	"plan --model GPT-2 --gpu T4 --micro-batch 64",
	"plan --model GPT-2 --gpu T4 --micro-batch 64 --json",
	"explain --model GPT-2",
	"solve micro-batch --model GPT-2 --gpu T4",
	"solve gpus --model GPT-2-xl --gpu T4 --json",
	"sweep --model GPT-2 --gpu T4 --axis micro-batch=1..3 -o out.csv",
	("sweep --model GPT-2 --gpu T4 --axis micro-batch=1,2 --axis seq-len=64,128 --heatmap "
	 "micro-batch,seq-len"),
	"read run.yaml",
	"read run.toml",
	"read -- accelerate launch --num_processes 2 train.py --fp16",
	"estimate --from run.yaml --model GPT-2 --gpu T4",
	"plan --from run.yaml --model GPT-2 --gpu T4 --micro-batch 64 --emit patch",
	"estimate --model GPT-2 --gpu T4 --lengths lognormal:300:0.5 --confidence 0.9",
	"record trainer",
	"diagnose crash.txt",
	"diagnose crash.txt --json",
	"box --model GPT-2 --top 3",
	"calibrate --report",
	"list gpus",
	"completion bash",
	NULL,
};

static char folder[] = "/tmp/oomplan-faults-XXXXXX";

void fault_begin(void)
{
	if (!mkdtemp(folder) || chdir(folder)) {
		perror(folder);
		exit(99);
	}
	for (size_t i = 0; i < FILES; i++) {
		FILE *f = fopen(files[i].name, "w");

		if (!f || fputs(files[i].text, f) < 0 || fclose(f)) {
			perror(files[i].name);
			exit(99);
		}
	}
}

bool fault_end(void)
{
	for (size_t i = 0; i < FILES; i++)
		unlink(files[i].name);
	unlink("out");
	unlink("err");
	unlink("out.csv");
	if (!chdir("/") && !rmdir(folder))
		return true;
	printf("not ok: files are left in %s\n", folder);
	return false;
}

size_t fault_take(const char *name, char *to, size_t room)
{
	FILE *f = fopen(name, "r");
	size_t n;

	if (!f)
		return 0;
	n = fread(to, 1, room, f);
	fclose(f);
	return n;
}

static void child(const char *program, const char *command, fault_setup *setup, const void *of)
{
	static char line[400];
	char *word[WORDS], *next = NULL;
	int n = 0;

	snprintf(line, sizeof(line), "%s", command);
	word[n++] = (char *)program;
	for (char *w = strtok_r(line, " ", &next); w && n < WORDS - 1; w = strtok_r(NULL, " ", &next))
		word[n++] = w;
	word[n] = NULL;
	if (!freopen("/dev/null", "r", stdin) || !freopen("out", "w", stdout) ||
	    !freopen("err", "w", stderr))
		_exit(98);
	if (setup)
		setup(of);
	/* a loop without an end is one of the processor, however long others keep it waiting; the suite has a time limit */
	setrlimit(RLIMIT_CPU, &(struct rlimit){60, 60});
	execv(program, word);
	_exit(97);
}

void fault_run(struct outcome *o, const char *program, const char *command, fault_setup *setup,
	       const void *of)
{
	int status = 0;
	pid_t pid;
	size_t n;

	if (!o->text && !(o->text = malloc(2 * KEPT)))
		exit(99);
	unlink("out.csv");
	fflush(stdout);                 /* or the child prints it again */
	pid = fork();
	if (!pid)
		child(program, command, setup, of);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	o->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	o->out = fault_take("out", o->text, KEPT);
	o->file = fault_take("out.csv", o->text + o->out, KEPT);
	n = fault_take("err", o->words, sizeof(o->words) - 1);
	o->words[n] = 0;
}

bool fault_same(const struct outcome *a, const struct outcome *b)
{
	return a->status == b->status && a->out == b->out && a->file == b->file &&
	       !memcmp(a->text, b->text, a->out + a->file);
}
