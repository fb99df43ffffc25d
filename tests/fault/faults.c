/* No allocation that fails changes an answer: every command is run again and again, each time with
 * another allocation failing (alone, and with all that follow it).  What comes out is the same answer,
 * or exit status 3 with words; never a signal, another answer, or a file left behind.
 *
 * faults OOMPLAN FAILING.so [MOST]: at most MOST allocations of a command are tried, spread over all of
 * them (0: every one). */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 24, KEPT = 1 << 20 };

static const char crash[] =
	"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
	"capacity of 79.15 GiB of which 1.50 GiB is free.\n";
static const char runs[] = "model,micro_batch,seq_len\nGPT-2,1,128\nGPT-2,2,64\n";

static const char *const commands[] = {
	"estimate --model GPT-2 --gpu T4",
	"estimate --model GPT-2 --gpu T4 --json",
	"estimate --runs runs.csv",
	"plan --model GPT-2 --gpu T4 --micro-batch 64",
	"plan --model GPT-2 --gpu T4 --micro-batch 64 --json",
	"explain --model GPT-2",
	"solve micro-batch --model GPT-2 --gpu T4",
	"sweep --model GPT-2 --gpu T4 --axis micro-batch=1..3 -o out.csv",
	("sweep --model GPT-2 --gpu T4 --axis micro-batch=1,2 --axis seq-len=64,128 --heatmap "
	 "micro-batch,seq-len"),
	"diagnose crash.txt",
	"diagnose crash.txt --json",
	"box --model GPT-2 --top 3",
	"calibrate --report",
	"list gpus",
	"completion bash",
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

struct outcome {
	int status;             /* exit status, or 128 + a signal */
	size_t out, file;       /* bytes on standard output, in out.csv */
	char *text;             /* both */
	char words[200];        /* of standard error */
};

static void put(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	if (!f || fputs(text, f) < 0 || fclose(f)) {
		perror(name);
		exit(99);
	}
}

static size_t take(const char *name, char *to, size_t room)
{
	FILE *f = fopen(name, "r");
	size_t n;

	if (!f)
		return 0;
	n = fread(to, 1, room, f);
	fclose(f);
	return n;
}

static void child(const char *program, const char *library, const char *command, long at, bool on)
{
	static char line[400];
	char number[32], *word[WORDS], *next = NULL;
	int n = 0;

	snprintf(line, sizeof(line), "%s", command);
	word[n++] = (char *)program;
	for (char *w = strtok_r(line, " ", &next); w && n < WORDS - 1; w = strtok_r(NULL, " ", &next))
		word[n++] = w;
	word[n] = NULL;
	if (!freopen("/dev/null", "r", stdin) || !freopen("out", "w", stdout) ||
	    !freopen("err", "w", stderr))
		_exit(98);
	setenv("LD_PRELOAD", library, 1);
	snprintf(number, sizeof(number), "%ld", at);
	setenv("OOM_FAIL_AT", number, 1);
	if (on)
		setenv("OOM_FAIL_ON", "1", 1);
	if (!at)
		setenv("OOM_FAIL_COUNT", "count", 1);
	alarm(60);
	execv(program, word);
	_exit(97);
}

static void run(struct outcome *o, const char *program, const char *library, const char *command,
		long at, bool on)
{
	int status = 0;
	pid_t pid;
	size_t n;

	unlink("out.csv");
	fflush(stdout);                 /* or the child prints it again */
	pid = fork();
	if (!pid)
		child(program, library, command, at, on);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	o->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	o->out = take("out", o->text, KEPT);
	o->file = take("out.csv", o->text + o->out, KEPT);
	n = take("err", o->words, sizeof(o->words) - 1);
	o->words[n] = 0;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
	return a->status == b->status && a->out == b->out && a->file == b->file &&
	       !memcmp(a->text, b->text, a->out + a->file);
}

/* NULL: as it must be. */
static const char *wrong(const struct outcome *right, const struct outcome *o)
{
	if (same(right, o))
		return NULL;
	if (o->status == 127)           /* the loader itself had no memory */
		return NULL;
	if (o->status != 3)
		return o->status > 127 ? "died" : "another answer";
	if (!strstr(o->words, "memory"))
		return "another reason";
	return o->file ? "a file is left" : NULL;
}

static long count(void)
{
	char text[32] = "";

	take("count", text, sizeof(text) - 1);
	return strtol(text, NULL, 10);
}

static long try_all(const char *program, const char *library, const char *command, long most)
{
	static struct outcome right, now;
	long n, bad = 0, tried = 0;

	if (!right.text) {
		right.text = malloc(2 * KEPT);
		now.text = malloc(2 * KEPT);
	}
	run(&right, program, library, command, 0, false);
	n = count();
	if (right.status > 1 || !n) {
		printf("not ok: %s: status %d, %ld allocations\n%s", command, right.status, n,
		       right.words);
		return 1;
	}
	for (long i = 1; i <= n; i += most && n > most && i > 25 ? n / most + 1 : 1)
		for (int on = 0; on < 2; on++) {
			const char *what;

			run(&now, program, library, command, i, on);
			tried++;
			what = wrong(&right, &now);
			if (what && ++bad <= 5)
				printf("not ok: %s: allocation %ld of %ld%s: %s (status %d) %s\n",
				       command, i, n, on ? " and all after it" : "", what,
				       now.status, now.words);
		}
	printf("%s: %ld of %ld tried, %ld wrong\n", command, tried, 2 * n, bad);
	return bad;
}

int main(int argc, char **argv)
{
	char program[4096], library[4096], dir[] = "/tmp/oomplan-faults-XXXXXX";
	long bad = 0, most;

	if (argc < 3 || !realpath(argv[1], program) || !realpath(argv[2], library) ||
	    !mkdtemp(dir) || chdir(dir))
		return 99;
	most = argc > 3 ? strtol(argv[3], NULL, 10) : 60;
	put("crash.txt", crash);
	put("runs.csv", runs);
	for (size_t i = 0; i < COMMANDS; i++)
		bad += try_all(program, library, commands[i], most);
	for (const char *const *name = (const char *const[]){"crash.txt", "runs.csv", "out", "err",
							     "out.csv", "count", NULL};
	     *name; name++)
		unlink(*name);
	if (chdir("/") || rmdir(dir)) {
		printf("not ok: files are left in %s\n", dir);
		bad++;
	}
	return bad != 0;
}
