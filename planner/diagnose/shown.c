/* What a text shows of the run that died: of the commands, files and calls in it the one that sets most, and the model and the
 * card that it names. */
#include "shown.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "frameworks/parts.h"
#include "input/gpu_words.h"
#include "input/model_spoken.h"
#include "oomplan/config.h"
#include "pieces.h"
#include "parts.h"

/* ---- the keys ---- */

static size_t keys_of(const struct oom_reading *r)
{
	const struct oom_reading_knob *k;
	size_t n = 0;

	for (size_t i = 0; (k = oom_reading_knob_at(r, i)) != NULL; i++)
		n += k->from_file;
	return n;
}

/* The trainer's piece and those of engines and launchers beside it. */
enum { BESIDE = 3 };
struct chosen {
	struct oom_shown *shown;
	struct oom_reading_text piece[1 + BESIDE];
	char *text[1 + BESIDE], name[1 + BESIDE][12];   /* of them; the texts are owned */
	size_t n_beside;
};

static bool keep(struct chosen *c, size_t i, const struct oom_piece *piece)
{
	char *const text = strdup(piece->text);

	if (!text)
		return false;
	free(c->text[i]);
	c->text[i] = text;
	snprintf(c->name[i], sizeof(c->name[i]), "%s", piece->name);
	c->piece[i] = (struct oom_reading_text){.name = c->name[i], .text = text, .size = piece->size};
	return true;
}

static void consider(void *ctx, const struct oom_piece *piece)
{
	struct chosen *const c = ctx;
	struct oom_shown *const s = c->shown;
	struct oom_reading *r = NULL;
	struct oom_error err = {{0}};
	const char *framework;
	size_t keys;

	if (oom_reading_of_text(&r, piece->name, piece->text, piece->size, NULL, &err))
		return;
	keys = keys_of(r);
	framework = oom_reading_framework(r);
	/* a map of an engine's or a launcher's own, not the command that names it */
	if (!framework && keys && c->n_beside < BESIDE && strcmp(piece->name, "run.sh") != 0)
		c->n_beside += keep(c, 1 + c->n_beside, piece);
	if (!framework || keys <= s->keys || !keep(c, 0, piece)) {
		oom_reading_free(r);
		return;
	}
	oom_reading_free(s->reading);
	s->reading = r;
	s->keys = keys;
	s->first = piece->first;
	s->last = piece->last;
}

/* The trainer's word for a file that stands in the text itself: "--deepspeed ds_config.json", "deepspeed: ds.json". */
static void leave_out(char *text, const char *key)
{
	for (char *p = text; (p = strstr(p, key)) != NULL; p++) {
		char *const value = p + strlen(key) + strspn(p + strlen(key), " =:\"'");
		const size_t n = strcspn(value, " \n\"'");

		if (n < 6 || (strncmp(value + n - 5, ".json", 5) && strncmp(value + n - 5, ".yaml", 5)))
			continue;
		if (p - text >= 2 && !strncmp(p - 2, "--", 2))
			memset(p - 2, ' ', (size_t)(value + n - p) + 2);
		else if (p == text || p[-1] == '\n')
			*p = '#';
	}
}

/* All of them as one run. */
static void together(struct chosen *c)
{
	struct oom_reading *r = NULL;
	struct oom_error err = {{0}};

	if (!c->shown->reading || !c->n_beside)
		return;
	leave_out(c->text[0], "deepspeed");
	leave_out(c->text[0], "config_file");
	c->piece[0].size = strlen(c->text[0]);
	if (oom_reading_of_texts(&r, c->piece, 1 + c->n_beside, NULL, &err))
		return;
	oom_reading_free(c->shown->reading);
	c->shown->reading = r;
	c->shown->beside = c->n_beside;
}

static void forget(struct chosen *c)
{
	for (size_t i = 0; i < 1 + BESIDE; i++)
		free(c->text[i]);
}

/* ---- the model ---- */

static bool in_name(char ch)
{
	return isalnum((unsigned char)ch) || strchr("-_./", ch) != NULL;
}

static void take_model(struct oom_shown *s, const char *from, size_t n, const struct oom_model_spoken *m)
{
	snprintf(s->named, sizeof(s->named), "%.*s", (int)(n < sizeof(s->named) ? n : sizeof(s->named) - 1), from);
	snprintf(s->model, sizeof(s->model), "%s", m->bundled);
	s->alike = m->alike;
}

/* By the keys: where --from would find it, else what its name says. */
static void keyed_model(struct oom_shown *s, const struct oom_spoken_models *models)
{
	const char *const word = s->reading ? oom_reading_value(s->reading, "model") : NULL;
	struct oom_model_spoken m;
	struct oom_error err = {{0}};

	if (!word || !strcmp(word, "-"))
		return;
	snprintf(s->named, sizeof(s->named), "%s", word);
	if (!oom_model_locate(word, NULL, NULL, s->model, sizeof(s->model), &err))
		return;
	*s->model = 0;
	if (oom_model_spoken(models, word, strlen(word), &m))
		take_model(s, word, strlen(word), &m);
}

/* Up to three words from p on, each behind one blank: "Llama 3 8b"; behind the last. */
static const char *words_end(const char *p, const char *end, int words)
{
	while (p < end) {
		while (p < end && in_name(*p))
			p++;
		if (!--words || p + 1 >= end || *p != ' ' || !in_name(p[1]))
			break;
		p++;
	}
	while (p[-1] == '.' || p[-1] == '/')
		p--;
	return p;
}

/* "7b" of a name, its digits alone; 0: it has none. */
static double size_of(const char *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *after;
		const double size = isdigit((unsigned char)from[i]) ? strtod(from + i, &after) : 0;

		if (size > 0 && after < from + n && (*after == 'b' || *after == 'B') && (after + 1 == from + n || !isalnum((unsigned char)after[1])))
			return size;
		while (i < n && isdigit((unsigned char)from[i]))
			i++;
	}
	return 0;
}

/* By a sentence: the first model that is spoken of with its size, which is that of the name in the keys where that has one. */
static void spoken_model(struct oom_shown *s, const struct oom_spoken_models *models, const char *begin, const char *end)
{
	const char *const last = strrchr(s->named, '/');
	const double keyed = size_of(last ? last + 1 : s->named, strlen(last ? last + 1 : s->named));
	struct oom_model_spoken m;

	for (const char *p = begin; p < end && !*s->model; p++) {
		if (!isalpha((unsigned char)*p) || (p > begin && in_name(p[-1])))
			continue;
		for (int words = 1; words <= 3 && !*s->model; words++) {
			const char *const to = words_end(p, end, words);

			if (to - p > 3 && to - p < 100 && (!*s->named || (keyed > 0 && keyed == size_of(p, (size_t)(to - p)))) &&
			    oom_model_spoken(models, p, (size_t)(to - p), &m)) {
				take_model(s, p, (size_t)(to - p), &m);
				s->said = true;
			}
		}
	}
}

/* ---- the card ---- */

/* A card's word at p, a whole word: its length; 0: none. */
static size_t card_at(const struct oom_gpu_word *known, size_t n, const char *begin, const char *p, const char *end)
{
	const char *to = p;

	if (!isalnum((unsigned char)*p) || (p > begin && isalnum((unsigned char)p[-1]) && !isdigit((unsigned char)p[-1]) && !oom_is_times(begin, p - 1)))
		return 0;
	while (to < end && isalnum((unsigned char)*to))
		to++;
	for (size_t i = 0; i < n; i++)
		if (strlen(known[i].word) == (size_t)(to - p) && !memcmp(p, known[i].word, (size_t)(to - p)) &&
		    (known[i].alone || (p - begin > 4 && (!memcmp(p - 4, "RTX ", 4) || !memcmp(p - 4, "GTX ", 4)))))
			return (size_t)(to - p);
	return 0;
}

/* The first card that is spoken of and of which one size is known, by the size that is said of it where there are several. */
static void spoken_card(struct oom_shown *s, const struct oom_crash *c, const struct oom_gpus *gpus, const char *begin, const char *end)
{
	struct oom_gpu_word known[OOM_GPU_WORDS];
	const size_t n = oom_gpu_words(known);
	struct oom_error err = {{0}};
	struct oom_gpu gpu;

	for (const char *p = begin; p < end && !*s->card; p++) {
		const size_t len = card_at(known, n, begin, p, end);
		char word[100];

		if (!len)
			continue;
		snprintf(word, sizeof(word), c->card_said > 0 ? "%.*s %.0fGB" : "%.*s", (int)len, p, c->card_said);
		if (!oom_gpu_find(gpus, word, &gpu, NULL, &err))
			snprintf(s->card, sizeof(s->card), "%s", word);
		p += len - 1;
	}
}

void oom_shown_read(const struct oom_crash_text *text, const struct oom_crash *c, struct oom_shown *out)
{
	struct oom_spoken_models models = {0};
	struct chosen chosen = {0};
	struct oom_gpus gpus = {0};
	struct oom_error err = {{0}};

	memset(out, 0, sizeof(*out));
	oom_spoken_load(&models);
	chosen.shown = out;
	for (int i = 0; i < 2; i++)
		if (text->size[i])
			oom_pieces(text->text[i], text->text[i] + text->size[i], text->line[i], consider, &chosen);
	together(&chosen);
	forget(&chosen);
	keyed_model(out, &models);
	for (int i = 0; i < 2 && !*out->model; i++)
		if (text->size[i])
			spoken_model(out, &models, text->text[i], text->text[i] + text->size[i]);
	oom_spoken_release(&models);
	if (c->known[OOM_CRASH_TOTAL] || oom_gpus_load(&gpus, &err))
		return;
	for (int i = 0; i < 2 && !*out->card; i++)
		if (text->size[i])
			spoken_card(out, c, &gpus, text->text[i], text->text[i] + text->size[i]);
	oom_gpus_release(&gpus);
}

void oom_shown_release(struct oom_shown *s)
{
	oom_reading_free(s->reading);
	s->reading = NULL;
}
