/* What the system refuses changes no answer: every command is run under each row of a table (stacks,
 * address space, files that may not grow, few or closed descriptors, a full disk, a folder that cannot
 * be written, no threads, signals).  What comes out is the same answer, or exit status 3 with words;
 * never a signal of a defect, another answer, or part of a file.
 *
 * around OOMPLAN INTERRUPTING.so */
#include <fcntl.h>
#include <limits.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"

struct row {
	const char *name;
	fault_setup *setup;
	rlim_t value;
	int what;               /* a limit, a descriptor, a signal */
	bool mute;              /* there is nowhere to say why */
	bool other;             /* what it prints goes elsewhere: the exit status says it all */
};

enum { UNABLE = 96 };            /* this machine does not let us make the circumstance */

static char library[PATH_MAX];

static void limit(const void *of)
{
	const struct row *r = of;
	const struct rlimit l = {r->value, r->value};

	setrlimit((__typeof__(RLIMIT_AS))r->what, &l);
}

static void closed(const void *of)
{
	close(((const struct row *)of)->what);
}

static void all_closed(const void *of)
{
	(void)of;
	for (int fd = 0; fd < 3; fd++)
		close(fd);
}

static void full(const void *of)
{
	(void)of;
	if (!freopen("/dev/full", "w", stdout))
		_exit(98);
}

/* Root may write anywhere, unless it is root without its capabilities. */
static void read_only(const void *of)
{
	(void)of;
	if (chdir("locked"))
		_exit(98);
	if (!getuid() && prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED))
		_exit(UNABLE);
}

/* A folder that nobody may write, with the files that the commands read. */
static bool lock_folder(bool make)
{
	static const char *const names[] = {"crash.txt", "runs.csv", "run.yaml"};
	char at[64], to[64];
	bool done = !make || !mkdir("locked", 0755);

	chmod("locked", 0755);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(at, sizeof(at), "locked/%s", names[i]);
		snprintf(to, sizeof(to), "../%s", names[i]);
		done = (make ? !symlink(to, at) : !unlink(at)) && done;
	}
	return (make ? !chmod("locked", 0555) : !rmdir("locked")) && done;
}

static void interrupted(const void *of)
{
	(void)of;
	setenv("LD_PRELOAD", library, 1);
}

static void ignored(const void *of)
{
	signal(((const struct row *)of)->what, SIG_IGN);
}

static void locale(const void *of)
{
	(void)of;
	setenv("LC_ALL", "de_DE.UTF-8", 1);
}

enum { KIB = 1 << 10, MIB = 1 << 20 };

static const struct row rows[] = {
	{"a stack of 64 KiB", limit, 64 * KIB, RLIMIT_STACK, false, false},
	{"a stack of 128 KiB", limit, 128 * KIB, RLIMIT_STACK, false, false},
	{"a stack of 256 KiB", limit, 256 * KIB, RLIMIT_STACK, false, false},
	{"a stack of 350 KiB", limit, 350 * KIB, RLIMIT_STACK, false, false},
	{"12 MiB of addresses", limit, 12 * MIB, RLIMIT_AS, false, false},
	{"16 MiB of addresses", limit, 16 * MIB, RLIMIT_AS, false, false},
	{"20 MiB of addresses", limit, 20 * MIB, RLIMIT_AS, false, false},
	{"24 MiB of addresses", limit, 24 * MIB, RLIMIT_AS, false, false},
	{"32 MiB of addresses", limit, 32 * MIB, RLIMIT_AS, false, false},
	{"64 MiB of addresses", limit, 64 * MIB, RLIMIT_AS, false, false},
	{"1 MiB of data", limit, 1 * MIB, RLIMIT_DATA, false, false},
	{"files of no byte", limit, 0, RLIMIT_FSIZE, true, false},
	{"files of 100 bytes", limit, 100, RLIMIT_FSIZE, false, false},
	{"files of 4 KiB", limit, 4 * KIB, RLIMIT_FSIZE, false, false},
	{"three descriptors", limit, 3, RLIMIT_NOFILE, false, false},
	{"four descriptors", limit, 4, RLIMIT_NOFILE, false, false},
	{"five descriptors", limit, 5, RLIMIT_NOFILE, false, false},
	{"no further thread", limit, 0, RLIMIT_NPROC, false, false},
	{"no standard input", closed, 0, 0, false, false},
	{"no standard output", closed, 0, 1, false, true},
	{"no standard error", closed, 0, 2, true, false},
	{"no descriptor", all_closed, 0, 0, true, true},
	{"a folder that cannot be written", read_only, 0, 0, false, false},
	{"a full disk", full, 0, 0, false, true},
	{"signals without a restart", interrupted, 0, 0, false, false},
	{"SIGPIPE ignored", ignored, 0, SIGPIPE, false, false},
	{"SIGXFSZ ignored", ignored, 0, SIGXFSZ, false, false},
	{"SIGCHLD ignored", ignored, 0, SIGCHLD, false, false},
	{"a locale with a decimal comma", locale, 0, 0, false, false},
};

/* NULL: as it must be. */
static const char *wrong(const struct row *r, const struct outcome *right, const struct outcome *o)
{
	if (fault_same(right, o))
		return NULL;
	/* a command that prints nothing has lost nothing */
	if (r->other && o->status == right->status && !right->out)
		return NULL;
	if (o->status == 127)           /* the loader itself had no room */
		return NULL;
	if (o->status != 3)
		return o->status > 127 ? "died" : "another answer";
	if (!r->mute && !strstr(o->words, "oomplan: "))
		return "no words";
	return o->file ? "a file is left" : NULL;
}

int main(int argc, char **argv)
{
	static struct outcome right, now;
	char program[PATH_MAX];
	long bad = 0, tried = 0, refused = 0, unable = 0;

	if (argc < 3 || !realpath(argv[1], program) || !realpath(argv[2], library))
		return 99;
	fault_begin();
	if (!lock_folder(true))
		return 99;
	for (const char *const *c = fault_commands; *c; c++) {
		fault_run(&right, program, *c, NULL, NULL);
		if (right.status > 1) {
			printf("not ok: %s: status %d %s\n", *c, right.status, right.words);
			bad++;
		}
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			const char *what;

			fault_run(&now, program, *c, rows[i].setup, &rows[i]);
			if (now.status == UNABLE) {
				unable++;
				continue;
			}
			tried++;
			refused += now.status > 1;
			what = wrong(&rows[i], &right, &now);
			if (what && ++bad)
				printf("not ok: %s, under %s: %s (status %d) %s\n", *c,
				       rows[i].name, what, now.status, now.words);
		}
	}
	printf("%ld tried, %ld refused, %ld wrong; %ld could not be tried here\n", tried, refused,
	       bad, unable);
	return !lock_folder(false) || !fault_end() || bad;
}
