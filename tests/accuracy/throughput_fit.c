/* What the shares of each class of cards come to, fitted to rows; and each row by a fit that did not see its source. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "throughput.h"

static double *share(struct oom_card_class *c, int i)
{
	double *const of[FITTED] = {&c->products, &c->per_watt, &c->attention, &c->memory};

	return of[i];
}

/* Large errors count by their size, not its square: a cluster's bad day is not fitted.  A source of
 * many rows counts as the root of their number. */
static double loss(const struct row *r)
{
	const double e = off(r), knee = 0.15;

	return e < knee ? e * e / (2 * knee) : e - knee / 2;
}

static bool left_out(const struct row *r, const char *source)
{
	return !r->complete || (source && !strcmp(r->source, source));
}

static double weight(const struct row *r, const char *source)
{
	double n = 0;

	for (size_t i = 0; i < all.n; i++)
		n += !left_out(&all.rows[i], source) && !strcmp(all.rows[i].source, r->source);
	return 1 / sqrt(n);
}

/* What class c takes without rows, and is drawn to with few: the mean over the classes of the same kind of
 * memory that have some, which are cards of the same kind of data sheet; over all where it has none. */
static void middle(const bool *seen, size_t like, double *mean)
{
	for (int p = 0; p < FITTED; p++) {
		double n[2] = {0}, sum[2] = {0};

		for (size_t c = 0; c < all.n_cls; c++)
			for (int kind = 0; kind < 2; kind++)
				if (seen[c] && !all.cls[c].benched && (!kind || all.cls[c].stacked == all.cls[like].stacked)) {
					sum[kind] += log(*share(&all.cls[c], p));
					n[kind]++;
				}
		mean[p] = n[1] > 0 ? sum[1] / n[1] : n[0] > 0 ? sum[0] / n[0] : 0;
	}
}

static double class_loss(size_t c, const double *w, const char *source, const double *mean)
{
	double sum = 0;

	for (size_t i = 0; i < all.n; i++) {
		struct row *r = &all.rows[i];

		if (r->cls != c || left_out(r, source))
			continue;
		predict(r);
		sum += w[i] * loss(r);
	}
	/* a factor of 1.5 from the mean weighs as an error of 0.04 of one row */
	for (int p = 0; p < FITTED; p++)
		sum += 0.03 * fabs(log(*share(&all.cls[c], p)) - mean[p]);
	return sum;
}

static void fit_class(size_t c, const double *w, const char *source, const double *mean, double step)
{
	double best = class_loss(c, w, source, mean);

	for (int p = 0; p < FITTED; p++)
		for (int way = 0; way < 2; way++) {
			const double by = way ? 1 / step : step, limit = p == 1 ? 4 : p == 3 ? 0.95 : p == 0 ? 1.2 : 1;
			double *const at = share(&all.cls[c], p), before = *at;
			double now;

			*at *= by;
			now = *at <= limit ? class_loss(c, w, source, mean) : INFINITY;
			if (now < best)
				best = now;
			else
				*at = before;
		}
}

/* Who published rows of which `is` holds, without the one left out. */
static int publishers(bool (*is)(const struct row *r, const void *of), const void *of, const char *source)
{
	int n = 0;

	for (size_t i = 0; i < all.n; i++) {
		const struct row *r = &all.rows[i];
		bool first = is(r, of) && !left_out(r, source);

		for (size_t k = 0; first && k < i; k++)
			first = !is(&all.rows[k], of) || left_out(&all.rows[k], source) ||
				strcmp(all.rows[k].source, r->source);
		n += first;
	}
	return n;
}

static bool of_class(const struct row *r, const void *c)
{
	return r->cls == *(const size_t *)c;
}

static bool of_card(const struct row *r, const void *name)
{
	return !strcmp(r->card, name);
}

int sources_of(size_t c, const char *source)
{
	return publishers(of_class, &c, source);
}

int card_sources(const char *card, const char *source)
{
	return publishers(of_card, card, source);
}

/* What the fit knows of each card. */
static void count_card_sources(const char *source)
{
	for (size_t i = 0; i < all.n; i++) {
		size_t k = 0;

		while (k < i && strcmp(all.rows[k].card, all.rows[i].card))
			k++;
		all.rows[i].gpu.step_sources = k < i ? all.rows[k].gpu.step_sources :
						       card_sources(all.rows[i].card, source);
	}
}

/* Sets classes to the mean of theirs: all of them, or those that have no rows. */
static void level(const bool *seen, bool without_rows)
{
	double mean[CLASSES][FITTED];

	for (size_t c = 0; c < all.n_cls; c++)
		middle(seen, c, mean[c]);
	for (size_t c = 0; c < all.n_cls; c++)
		for (int p = 0; p < FITTED && !all.cls[c].benched && !(without_rows && seen[c]); p++)
			*share(&all.cls[c], p) = exp(mean[c][p]);
}

/* From the mean of what is shipped, so that a class is known by its rows alone. */
void fit(const char *source)
{
	static const double steps[] = {1.3, 1.15, 1.07, 1.03, 1.01};
	static double w[MAX_ROWS];
	bool seen[CLASSES] = {false};
	double mean[FITTED];

	for (size_t i = 0; i < all.n; i++) {
		w[i] = weight(&all.rows[i], source);
		seen[all.rows[i].cls] |= !left_out(&all.rows[i], source);
	}
	for (size_t c = 0; c < all.n_cls; c++) {
		all.cls[c] = *oom_card_class_at(c);
		all.cls[c].sources = sources_of(c, source);
	}
	level(seen, false);
	for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++)
		for (int round = 0; round < 12; round++)
			for (size_t c = 0; c < all.n_cls; c++)
				if (seen[c] && !all.cls[c].benched) {
					middle(seen, c, mean);
					fit_class(c, w, source, mean, steps[s]);
				}
	level(seen, true);
	count_card_sources(source);
	for (size_t i = 0; i < all.n; i++)
		predict(&all.rows[i]);
}

void print_fit(void)
{
	printf("| class | products | per watt | attention | memory |\n|---|---|---|---|---|\n");
	for (size_t c = 0; c < all.n_cls; c++)
		printf("| %-22s | %.3f | %.3f | %.3f | %.3f |\n", all.cls[c].name,
		       all.cls[c].products, all.cls[c].per_watt, all.cls[c].attention,
		       all.cls[c].memory);
}

/* Every row as predicted by the fit that did not see its source. */
void cross(void)
{
	static double kept[MAX_ROWS][3];
	bool done[MAX_ROWS] = {false};

	for (size_t i = 0; i < all.n; i++) {
		if (done[i] || !all.rows[i].complete)
			continue;
		fit(all.rows[i].source);
		for (size_t k = i; k < all.n; k++)
			if (!strcmp(all.rows[k].source, all.rows[i].source)) {
				kept[k][0] = all.rows[k].predicted;
				kept[k][1] = all.rows[k].low;
				kept[k][2] = all.rows[k].high;
				done[k] = true;
			}
	}
	/* sources without a complete row are in no fit */
	fit(NULL);
	for (size_t i = 0; i < all.n; i++) {
		if (!done[i])
			continue;
		all.rows[i].predicted = kept[i][0];
		all.rows[i].low = kept[i][1];
		all.rows[i].high = kept[i][2];
	}
}
