/* Scores of the rows, and of groups of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "throughput.h"

int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct score score(group_fn of, const char *group)
{
	static double q[MAX_ROWS];
	struct score s = {0};

	for (size_t i = 0; i < all.n; i++) {
		const struct row *r = &all.rows[i];

		if (!r->complete || (group && strcmp(of(r), group)))
			continue;
		q[s.n++] = r->predicted / r->published;
		s.nearer += off(r) <= log(1.25);
		s.near += off(r) <= log(1.5);
		s.held += r->low <= r->published && r->published <= r->high;
	}
	if (!s.n)
		return s;
	qsort(q, s.n, sizeof(*q), by_size);
	s.median = s.n % 2 ? q[s.n / 2] : (q[s.n / 2 - 1] + q[s.n / 2]) / 2;
	s.p10 = q[s.n / 10];
	s.p90 = q[s.n - 1 - s.n / 10];
	s.nearer /= (double)s.n;
	s.near /= (double)s.n;
	s.held /= (double)s.n;
	return s;
}

static void print_score(const char *name, struct score s)
{
	if (s.n)
		printf("| %-28s | %4zu | %5.2f | %5.2f | %5.2f | %3.0f | %3.0f | %3.0f |\n", name, s.n,
		       s.median, s.p10, s.p90, 100 * s.nearer, 100 * s.near, 100 * s.held);
}

const char *card(const struct row *r)
{
	return r->card;
}

const char *engine(const struct row *r)
{
	return r->engine;
}

const char *nodes(const struct row *r)
{
	return r->plan.gpus == 1 ? "1 GPU" : r->plan.nodes == 1 ? "1" : r->plan.nodes <= 8 ? "2-8" : "9+";
}

const char *size(const struct row *r)
{
	return r->params < 1e9 ? "< 1B" : r->params < 1e10 ? "1-10B" : r->params < 1e11 ? "10-100B" : "100B+";
}

/* Whether anyone else published rows of the row's class of cards. */
static const char *known(const struct row *r)
{
	return sources_of(r->cls, r->source) ? "others' rows" : "no rows";
}

static const char *source(const struct row *r)
{
	return r->source;
}

static void print_groups(const char *title, group_fn of)
{
	for (size_t i = 0; i < all.n; i++) {
		char name[140];
		bool first = all.rows[i].complete;

		for (size_t k = 0; first && k < i; k++)
			first = !all.rows[k].complete || strcmp(of(&all.rows[k]), of(&all.rows[i]));
		snprintf(name, sizeof(name), "%s %s", title, of(&all.rows[i]));
		if (first)
			print_score(name, score(of, of(&all.rows[i])));
	}
}

/* The mean over sources of how many of their rows lie in the interval, so that one of many rows counts once: of rows that
 * state everything, or of those that leave something open as well. */
double held_by_source(bool open, size_t *sources)
{
	double sum = 0;

	*sources = 0;
	for (size_t i = 0; i < all.n; i++) {
		double n = 0, held = 0;
		bool first = open || all.rows[i].complete;

		for (size_t k = 0; first && k < all.n; k++) {
			const struct row *r = &all.rows[k];

			if (strcmp(r->source, all.rows[i].source) || !(open || r->complete))
				continue;
			first = k >= i;
			n++;
			held += r->low <= r->published && r->published <= r->high;
		}
		if (!first)
			continue;
		sum += held / n;
		++*sources;
	}
	return *sources ? sum / (double)*sources : 0;
}

void print_scores(void)
{
	printf("| rows | n | median | p10 | p90 | within 1.25 | within 1.5 | in the interval |\n"
	       "|---|---|---|---|---|---|---|---|\n");
	print_score("all", score(NULL, NULL));
	print_groups("card", card);
	print_groups("engine", engine);
	print_groups("nodes", nodes);
	print_groups("size", size);
	print_groups("source", source);
	print_groups("class known from", known);
	for (int open = 0; open < 2; open++) {
		size_t sources;
		const double held = held_by_source(open, &sources);

		printf("interval%s, each of %zu sources once: %.0f %%\n", open ? " with set-ups that leave something open" : "",
		       sources, 100 * held);
	}
}

/* Pairs on one set-up that were published 3 % apart and more: how many stand in that order. */
double ordered(void)
{
	size_t right = 0, pairs = 0;

	for (size_t i = 0; i < all.n; i++)
		for (size_t k = 0; k < i; k++) {
			const struct row *a = &all.rows[i], *b = &all.rows[k];
			const double d = log(a->published / b->published);

			if (!a->complete || !b->complete || strcmp(a->source, b->source) ||
			    strcmp(a->model, b->model) || strcmp(a->card, b->card) ||
			    a->plan.gpus != b->plan.gpus || fabs(d) < log(1.03))
				continue;
			pairs++;
			right += d * log(a->predicted / b->predicted) > 0;
		}
	printf("pairs ordered right: %zu of %zu\n", right, pairs);
	return pairs ? (double)right / (double)pairs : 0;
}
