/* property OOMPLAN TYPES.jsonl SEED QUESTIONS [WORD]: draws questions over every model type and asks the laws of
 * them, those whose names contain WORD.  A broken one is made smaller and printed; exit 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "question.h"

enum { MOST_LAWS = 64, MOST_SHOWN = 3, QUESTIONS_A_MODEL = 4 };

static struct tally {
	size_t asked, broken;
} tally[MOST_LAWS];

static void ask(size_t i, const struct law *law, struct question q, const struct subject *s)
{
	char words[400], options[1600];
	const enum finding found = law->check(s, &q, words, sizeof(words));

	tally[i].asked += found != SILENT;
	if (found != BROKEN)
		return;
	if (tally[i].broken++ >= MOST_SHOWN)
		return;
	question_shrink(&q, s, law->check, words, sizeof(words));
	printf("BROKEN: %s\n  %s\n  %s\n", law->name, words,
	       question_options(&q, s, options, sizeof(options)));
	fflush(stdout);
}

static void ask_all(const struct question *q, const struct subject *s, const char *word, size_t turn)
{
	const struct law *const tables[] = {laws, agreements};
	size_t n = 0;

	for (size_t t = 0; t < 2; t++)
		for (const struct law *l = tables[t]; l->name; l++, n++)
			if (turn % l->every == n % l->every && (!word || strstr(l->name, word)))
				ask(n, l, *q, s);
}

/* The i-th line's type with every key at its default. */
static bool open_line(struct subject *s, char *line)
{
	char json[200];

	line[strcspn(line, "\t")] = 0;
	snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", line);
	return subject_open(s, line, json);
}

static size_t read_lines(const char *path, char **line, size_t most)
{
	FILE *f = fopen(path, "r");
	size_t n = 0;

	if (!f) {
		perror(path);
		exit(1);
	}
	for (size_t size = 0; n < most && (line[n] = NULL, getline(&line[n], &size, f) > 0); size = 0)
		n++;
	free(line[n]);
	fclose(f);
	return n;
}

static int report(size_t questions)
{
	const struct law *const tables[] = {laws, agreements};
	size_t n = 0, broken = 0;

	for (size_t t = 0; t < 2; t++)
		for (const struct law *l = tables[t]; l->name; l++, n++) {
			printf("%-56s asked %6zu  broken %zu\n", l->name, tally[n].asked, tally[n].broken);
			broken += tally[n].broken;
		}
	printf("%zu questions\n", questions);
	return broken ? 1 : 0;
}

int main(int argc, char **argv)
{
	static char *line[1000];
	const char *word = argc > 5 ? argv[5] : NULL;
	size_t n, asked = 0, want;
	uint64_t state;

	if (argc < 5) {
		fprintf(stderr, "usage: property OOMPLAN TYPES.jsonl SEED QUESTIONS [WORD]\n");
		return 2;
	}
	oomplan = argv[1];
	state = strtoull(argv[3], NULL, 10);
	want = strtoull(argv[4], NULL, 10);
	n = read_lines(argv[2], line, sizeof(line) / sizeof(line[0]) - 1);
	for (size_t tries = 0; asked < want && tries < 100 * want; tries++) {
		struct subject s;
		struct question q;

		if (!open_line(&s, line[roll(&state, n)]))
			continue;
		for (int i = 0; i < QUESTIONS_A_MODEL && asked < want; i++) {
			question_draw(&q, &s, &state);
			ask_all(&q, &s, word, asked++);
		}
		subject_close(&s);
	}
	for (size_t i = 0; i < n; i++)
		free(line[i]);
	return report(asked);
}
