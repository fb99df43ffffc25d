/* A signal after every call of the program that touches a file: the program is traced, and from its first
 * call that makes a file on it is ended or killed after the N-th, for every N.  A file that it writes is as
 * it was, or whole; who is ended leaves nothing else behind; who is killed leaves nothing that the next run
 * stumbles over; and a table that may be continued is continued to the same bytes.
 *
 * moments OOMPLAN SNAPSHOT */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
/* after the libc's own */
#include <linux/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"

#define SWEEP "sweep --model GPT-2 --gpu T4 --threads 1 --axis micro-batch=1..40 "
/* of several blocks: a signal finds it between two */
#define LONG_SWEEP SWEEP "--axis seq-len=1..300 --columns seq-len,total_params "

static const struct {
	const char *command, *again;    /* what continues it; NULL: the same command */
	const char *file;
	bool old;                       /* there is one already */
} rows[] = {
	{SWEEP "-q -o out.csv", NULL, "out.csv", true},
	{SWEEP "-q -o out.csv", NULL, "out.csv", false},
	{LONG_SWEEP "-q -o out.csv --keep-partial", LONG_SWEEP "-q -o out.csv --resume", "out.csv", true},
	{LONG_SWEEP "-q -o out.csv --resume", NULL, "out.csv", false},
	{SWEEP "--axis seq-len=64,128 --heatmap micro-batch,seq-len out.svg", NULL, "out.svg", true},
	{"estimate --runs runs.csv -o out.csv", NULL, "out.csv", true},
	{"estimate --model GPT-2 --gpu T4 --check --report md:out.md", NULL, "out.md", true},
	{"plan --model GPT-2 --gpu T4 --plot out.svg", NULL, "out.svg", true},
	{"plan --model GPT-2 --gpu T4 --emit trl:out.yaml --overwrite", NULL, "out.yaml", true},
	{"box --model GPT-2 --tokens 1B --top 3 --plot out.svg", NULL, "out.svg", true},
	{"diagnose snapshot --plot out.svg", NULL, "out.svg", true},
	{"calibrate measured.csv -o out.cal", NULL, "out.cal", true},
};

/* BEGUN: calls after which a table's first rows are written */
enum { BEGUN = 8, MOST = 1 << 20, CALLS = 400, UNABLE = 77 };

/* ---- files ---- */

static void put(const char *name, const char *text, size_t n)
{
	FILE *f = fopen(name, "w");

	if (!f || fwrite(text, 1, n, f) != n || fclose(f)) {
		perror(name);
		exit(99);
	}
}

/* What the command of a row has made, beside what was there before; "" when nothing. */
static const char *strangers(const char *file)
{
	static const char *const ours[] = {"crash.txt", "runs.csv", "run.yaml", "snapshot", "measured.csv", "out", "err"};
	static char names[400];
	DIR *d = opendir(".");
	const struct dirent *e;
	size_t n = 0;

	names[0] = 0;
	while (d && (e = readdir(d)) != NULL) {
		bool known = e->d_name[0] == '.' || !strcmp(e->d_name, file);

		for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
			known = known || !strcmp(e->d_name, ours[i]);
		if (!known && n < sizeof(names))
			n += (size_t)snprintf(names + n, sizeof(names) - n, " %s", e->d_name);
	}
	if (d)
		closedir(d);
	return names;
}

/* Everything that a row's command may have left. */
static void sweep_up(const char *file)
{
	char names[400], *next = NULL;

	snprintf(names, sizeof(names), "%s", strangers(file));
	for (char *w = strtok_r(names, " ", &next); w; w = strtok_r(NULL, " ", &next))
		unlink(w);
	unlink(file);
}

/* ---- the traced program ---- */

/* Calls after which something in a folder may be another way. */
static bool touches_files(const struct ptrace_syscall_info *i)
{
	static const long calls[] = {
		SYS_openat, SYS_write, SYS_writev, SYS_close, SYS_fsync, SYS_ftruncate, SYS_fchmod, SYS_flock,
		SYS_renameat2, SYS_unlinkat, SYS_lseek, SYS_rt_sigprocmask,
#ifdef SYS_open                 /* machines that have the older calls, too */
		SYS_open, SYS_rename, SYS_unlink,
#endif
#ifdef SYS_renameat
		SYS_renameat,
#endif
	};

	for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
		if ((long)i->entry.nr == calls[k])
			return true;
	return false;
}

static bool makes_file(const struct ptrace_syscall_info *i)
{
#ifdef SYS_open
	if ((long)i->entry.nr == SYS_open)
		return i->entry.args[1] & O_CREAT;
#endif
	return (long)i->entry.nr == SYS_openat && i->entry.args[2] & O_CREAT;
}

static void traced(const void *of)
{
	(void)of;
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

static void be_child(const char *program, const char *command)
{
	char line[400], *word[32], *next = NULL;
	int n = 0;

	snprintf(line, sizeof(line), "%s", command);
	word[n++] = (char *)program;
	for (char *w = strtok_r(line, " ", &next); w && n < 31; w = strtok_r(NULL, " ", &next))
		word[n++] = w;
	word[n] = NULL;
	if (!freopen("/dev/null", "r", stdin) || !freopen("out", "w", stdout) || !freopen("err", "w", stderr))
		_exit(98);
	traced(NULL);
	execv(program, word);
	_exit(97);
}

/* One run; `first` after call `at` (0: never), and `second` after `then` calls more.  *calls: how many there
 * were.  Its wait status. */
static int run(const char *program, const char *command, int first, long at, int second, long then, long *calls)
{
	struct ptrace_syscall_info info;
	bool made = false, counts = false;
	int status = 0, deliver = 0;
	long n = 0;
	pid_t pid;

	fflush(stdout);                 /* or the child prints it again */
	pid = fork();
	if (!pid)
		be_child(program, command);
	if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)))
		exit(UNABLE);
	while (!ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)deliver) && waitpid(pid, &status, 0) == pid &&
	       WIFSTOPPED(status)) {
		const int sig = WSTOPSIG(status);

		deliver = 0;
		if (sig != (SIGTRAP | 0x80)) {
			deliver = sig == SIGTRAP ? 0 : sig;     /* of exec */
			continue;
		}
		memset(&info, 0, sizeof(info));
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) < 0)
			exit(UNABLE);
		if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
			made = made || makes_file(&info);
			counts = made && touches_files(&info);
		} else if (info.op == PTRACE_SYSCALL_INFO_EXIT && counts) {
			n++;
			if (at && n == at)
				kill(pid, first);
			if (at && second && n == at + then)
				kill(pid, second);
		}
	}
	while (!WIFEXITED(status) && !WIFSIGNALED(status) && waitpid(pid, &status, 0) == pid)
		;
	*calls = n;
	return status;
}

/* ---- judging ---- */

static long bad;

static void complain(const char *command, int first, long at, int second, long then, const char *what, const char *more)
{
	if (++bad <= 40)
		printf("not ok: %s: signal %d after call %ld, %d after %ld more: %s %s\n", command, first, at, second,
		       then, what, more);
}

/* Of a run that nothing ends. */
static char whole[MOST], now[MOST];
static size_t n_whole;
static int right;
static const char measured[] = "predicted,measured\n1GiB,1.5GiB\n4GiB,4.5GiB\n9GiB,9.6GiB\n16GiB,16.5GiB\n"
			       "6GiB,6.5GiB\n2GiB,2.5GiB\n8GiB,8.5GiB\n11GiB,11.5GiB\n";
static const char old[] = "what was there before\n";

/* The file as it was, or whole. */
static bool sound(const char *file, bool was_there)
{
	const size_t n = fault_take(file, now, sizeof(now));

	if (n == n_whole && !memcmp(now, whole, n))
		return true;
	return was_there ? n == sizeof(old) - 1 && !memcmp(now, old, n) : access(file, F_OK) != 0;
}

/* One row with one pair of signals; returns false when the run ended before them. */
static bool try_one(const char *program, size_t row, int first, long at, int second, long then)
{
	const char *command = rows[row].command, *file = rows[row].file;
	const bool kept = strstr(command, "--keep-partial") || strstr(command, "--resume"),
		   killed = first == SIGKILL || second == SIGKILL;
	long calls;
	int status;

	sweep_up(file);
	if (rows[row].old)
		put(file, old, sizeof(old) - 1);
	status = run(program, command, first, at, second, then, &calls);
	if (WIFEXITED(status) && WEXITSTATUS(status) != right)
		complain(command, first, at, second, then, "another exit status",
			 fault_take("err", now, 200) ? now : "");
	if (WIFSIGNALED(status) && WTERMSIG(status) != first && WTERMSIG(status) != second)
		complain(command, first, at, second, then, "died of another signal", "");
	if (!sound(file, rows[row].old))
		complain(command, first, at, second, then, "half a file", "");
	if (!killed && !kept && *strangers(file))
		complain(command, first, at, second, then, "files are left:", strangers(file));
	if (kept || killed) {
		long more;
		const int next = run(program, rows[row].again ? rows[row].again : command, 0, 0, 0, 0, &more);

		memset(now, 0, 200);
		if (!WIFEXITED(next) || WEXITSTATUS(next) != right)
			complain(command, first, at, second, then, "the next run:", fault_take("err", now, 199) ? now : "");
		else if (!sound(file, false))
			complain(command, first, at, second, then, "the next run: another file", "");
		else if (kept && *strangers(file))
			complain(command, first, at, second, then, "the next run leaves", strangers(file));
	}
	return calls >= at + then;
}

static long try_row(const char *program, size_t row)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGKILL};
	const char *command = rows[row].command;
	long calls, tried = 0;
	int status;

	sweep_up(rows[row].file);
	status = run(program, command, 0, 0, 0, 0, &calls);
	right = WEXITSTATUS(status);
	n_whole = fault_take(rows[row].file, whole, sizeof(whole));
	if (!WIFEXITED(status) || right > 1 || !n_whole || !calls) {
		memset(now, 0, 200);
		fault_take("err", now, 199);
		complain(command, 0, 0, 0, 0, "does not run:", now);
		return 0;
	}
	for (size_t s = 0; s < sizeof(ends) / sizeof(ends[0]); s++)
		for (long at = 1; at <= calls && at <= CALLS; at++, tried++)
			try_one(program, row, ends[s], at, 0, 0);
	/* a second signal while the first, which finds the table begun, is answered */
	for (size_t s = 0; strstr(command, "-partial") && s < 4; s++)
		for (long then = 1; then <= CALLS; then++, tried++)
			if (!try_one(program, row, SIGTERM, BEGUN, ends[s], then))
				break;
	sweep_up(rows[row].file);
	return tried;
}

int main(int argc, char **argv)
{
	char program[PATH_MAX], snapshot[PATH_MAX];
	long tried = 0;

	if (argc < 3 || !realpath(argv[1], program) || !realpath(argv[2], snapshot))
		return 99;
	fault_begin();
	if (symlink(snapshot, "snapshot"))
		return 99;
	put("measured.csv", measured, sizeof(measured) - 1);
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
		tried += try_row(program, row);
	unlink("snapshot");
	unlink("measured.csv");
	printf("%ld moments tried, %ld wrong\n", tried, bad);
	return !fault_end() || bad;
}
