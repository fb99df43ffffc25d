/* The GPU table and how people spell its names. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "csv_rows.h"
#include "embedded.h"
#include "gpu_slice.h"
#include "oomplan/gpu.h"
#include "oomplan/option.h"
#include "oomplan/units.h"

static const char *const kinds[] = {"measured", "nvidia-smi", "marketing"};

const char *oom_capacity_kind_str(enum oom_capacity_kind kind)
{
	return kinds[kind];
}

/* Lower case letters and digits only; vendor words, "gb"/"gib" and a trailing size unit drop out:
 * "NVIDIA GeForce RTX 4090" and "4090" give "4090", "A100-SXM4-40GB" gives "a100sxm440". */
static void normalise(const char *s, char *out, size_t size)
{
	static const char *const noise[] = {"nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "quadro", "rtx", "gtx"};
	char low[128];
	size_t n = 0, k = 0, word = 0;          /* where the last word begins */
	bool between = false;

	for (; *s && n + 1 < sizeof(low); s++) {
		if (isalnum((unsigned char)*s)) {
			word = between ? n : word;
			low[n++] = (char)tolower((unsigned char)*s);
		}
		between = !isalnum((unsigned char)*s);
	}
	low[n] = 0;
	for (size_t i = 0; i < n && k + 1 < size;) {
		size_t skip = 0;

		for (size_t w = 0; w < sizeof(noise) / sizeof(noise[0]); w++)
			if (low[i] == noise[w][0] &&
			    !strncmp(low + i, noise[w], strlen(noise[w])) && strlen(noise[w]) < n)
				skip = strlen(noise[w]);
		/* 40gib, 40gb, 40g */
		if (!skip && i && isdigit((unsigned char)low[i - 1])) {
			if (!strncmp(low + i, "gib", 3))
				skip = 3;
			else if (!strncmp(low + i, "gb", 2))
				skip = 2;
			else if (low[i] == 'g' && !low[i + 1] && word &&
				 strspn(low + word, "0123456789") == i - word)
				skip = 1;       /* "A100-80G"; "A10G" and "T4G" are names */
		}
		if (skip)
			i += skip;
		else
			out[k++] = low[i++];
	}
	out[k] = 0;
}

static void copy(char *to, size_t size, const char *from)
{
	const size_t n = from ? strnlen(from, size - 1) : 0;

	memcpy(to, n ? from : "", n);
	to[n] = 0;
}

static double number(const struct oom_csv_row *row, const char *name)
{
	const char *s = oom_csv_cell(row, name);

	return s ? strtod(s, NULL) : 0;
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct oom_gpus *gpus = ctx;
	const char *name = oom_csv_cell(row, "name"), *kind = oom_csv_cell(row, "capacity_kind");
	double mib = number(row, "capacity_mib"), gb = number(row, "memory_gb");
	struct oom_gpu g = {.capacity_kind = OOM_CAPACITY_MEASURED};
	struct oom_gpu *items;

	if (!name || !*name)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s:%zu: a GPU without a name (column \"name\")", row->file,
				     row->line);
	if (!(mib > 0) && gb > 0) {
		mib = gb * 1024;
		g.capacity_kind = OOM_CAPACITY_MARKETING;
	}
	if (!(mib > 0 && mib < 1e9))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s:%zu: %s has no memory size (column \"capacity_mib\" or "
				     "\"memory_gb\")",
				     row->file, row->line, name);
	for (int i = 0; kind && i < 3; i++)
		if (!strcmp(kind, kinds[i]))
			g.capacity_kind = (enum oom_capacity_kind)i;
	copy(g.name, sizeof(g.name), name);
	copy(g.aliases, sizeof(g.aliases), oom_csv_cell(row, "aliases"));
	copy(g.vendor, sizeof(g.vendor), oom_csv_cell(row, "vendor"));
	copy(g.architecture, sizeof(g.architecture), oom_csv_cell(row, "architecture"));
	copy(g.interconnect, sizeof(g.interconnect), oom_csv_cell(row, "interconnect"));
	copy(g.source, sizeof(g.source), oom_csv_cell(row, "source"));
	copy(g.checked, sizeof(g.checked), oom_csv_cell(row, "checked"));
	g.memory_gb = gb > 0 ? gb : mib / 1024;
	g.capacity_bytes = (uint64_t)(mib * 1048576.0);
	g.capacity_high_bytes = (uint64_t)(fmax(mib, number(row, "torch_total_mib_high")) * 1048576.0);
	g.compute_capability = number(row, "compute_capability");
	g.bandwidth_gb_s = number(row, "mem_bw_gb_s");
	g.bf16_tflops = number(row, "bf16_tflops");
	g.fp16_tflops = number(row, "fp16_tflops");
	g.fp32_tflops = number(row, "fp32_tflops");
	g.matmul_tflops = number(row, "matmul_tflops");
	g.tdp_w = number(row, "tdp_w");
	g.nvlink_domain = number(row, "nvlink_domain");
	g.step_sources = (int)fmin(fmax(number(row, "step_sources"), 0), 1000);
	for (size_t i = 0; i < gpus->n; i++)
		if (!strcmp(gpus->items[i].name, g.name)) {
			gpus->items[i] = g;
			return OOM_OK;
		}
	if (gpus->n >= 100000)
		return oom_error_set(err, OOM_ERR_LIMIT, "%s:%zu: more than 100000 GPUs", row->file,
				     row->line);
	items = realloc(gpus->items, (gpus->n + 1) * sizeof(*items));
	if (!items)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	gpus->items = items;
	gpus->items[gpus->n++] = g;
	return OOM_OK;
}

enum oom_status oom_gpus_load(struct oom_gpus *gpus, struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("gpus.csv");

	return oom_csv_parse((const char *)f->bytes, f->size, "gpus.csv", take, gpus, err);
}

/* A user's own table, and how many rows it had. */
struct own {
	struct oom_gpus *gpus;
	size_t rows;
};

static enum oom_status take_own(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct own *own = ctx;

	own->rows++;
	return take(own->gpus, row, err);
}

enum oom_status oom_gpus_read(struct oom_gpus *gpus, const char *path, struct oom_error *err)
{
	struct own own = {.gpus = gpus};
	const enum oom_status st = oom_csv_read(path, take_own, &own, err);

	return st || own.rows ? st : oom_error_set(err, OOM_ERR_PARSE, "%s: no card: a header and no row", path);
}

void oom_gpus_release(struct oom_gpus *gpus)
{
	if (!gpus)
		return;
	free(gpus->items);
	gpus->items = NULL;
	gpus->n = 0;
}

/* Name, alias, or either cut at the word's end: 3 exact, 2 alias, 1 prefix ("a100" for
 * "A100-SXM4-40GB"). */
static int match(const struct oom_gpu *g, const char *want)
{
	char norm[128], list[sizeof(g->aliases)], *save = NULL;
	int best = 0;

	normalise(g->name, norm, sizeof(norm));
	if (!strcmp(norm, want))
		return 3;
	if (!strncmp(norm, want, strlen(want)) && !isdigit((unsigned char)norm[strlen(want)]))
		best = 1;
	copy(list, sizeof(list), g->aliases);
	for (char *a = strtok_r(list, ";", &save); a; a = strtok_r(NULL, ";", &save)) {
		normalise(a, norm, sizeof(norm));
		if (!strcmp(norm, want))
			return 2;
		if (!strncmp(norm, want, strlen(want)) &&
		    !isdigit((unsigned char)norm[strlen(want)]))
			best = 1;
	}
	return best;
}

/* The nearest of all names and aliases: most people write an alias. */
static enum oom_status unknown(const struct oom_gpus *gpus, const char *word, struct oom_error *err)
{
	enum { WORDS = 24 };                    /* of one card */
	const size_t each = sizeof(gpus->items->aliases);
	const char **names = calloc(gpus->n * WORDS + 1, sizeof(*names)), *near;
	char *aliases = calloc(gpus->n + 1, each);
	size_t n = 0;

	for (size_t i = 0; names && aliases && i < gpus->n; i++) {
		char *list = aliases + i * each, *save = NULL;
		const size_t first = n;

		memcpy(list, gpus->items[i].aliases, each);
		names[n++] = gpus->items[i].name;
		for (char *a = strtok_r(list, ";", &save); a && n - first < WORDS;
		     a = strtok_r(NULL, ";", &save))
			names[n++] = a;
	}
	near = names && aliases ? oom_nearest(word, names) : NULL;
	oom_error_set(err, OOM_ERR_UNKNOWN,
		      "unknown GPU \"%s\"%s%s%s; see: oomplan list gpus, or give --gpu-memory",
		      word, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
	free(names);
	free(aliases);
	return OOM_ERR_UNKNOWN;
}

/* Is it the word and a size of memory, of another card than the one that the word alone names:
 * "4060 Ti", "4060 Ti 16GB"? */
static bool is_larger_of(const struct oom_gpu *g, const char *want)
{
	const size_t n = strlen(want);
	char list[sizeof(g->aliases) + sizeof(g->name) + 1], norm[128], *save = NULL;

	snprintf(list, sizeof(list), "%s;%s", g->name, g->aliases);
	for (char *a = strtok_r(list, ";", &save); a; a = strtok_r(NULL, ";", &save)) {
		char *end;

		normalise(a, norm, sizeof(norm));
		if (strncmp(norm, want, n) || !isdigit((unsigned char)norm[n]))
			continue;
		if ((double)strtol(norm + n, &end, 10) == g->memory_gb &&
		    (!*end || !strcmp(end, "g") || !strcmp(end, "gb")))
			return true;
	}
	return false;
}

/* The word is one card's own name, and the beginning of others'. */
static void note_others(const struct oom_gpus *gpus, const char *word, const char *want,
			const struct oom_gpu *pick, char note[256])
{
	size_t n = 0;

	for (size_t i = 0; i < gpus->n && n < 200; i++)
		if (gpus->items[i].memory_gb != pick->memory_gb && is_larger_of(&gpus->items[i], want))
			n += (size_t)snprintf(note + n, 256 - n, "%s%.60s", n ? ", " :
					      "there is also ", gpus->items[i].name);
	if (n && n < 255)
		snprintf(note + n, 256 - n, ": \"%.40s\" is taken for %.60s", word, pick->name);
}

bool oom_gpu_may_be(const struct oom_gpus *gpus, const char *word, const char *name)
{
	const struct oom_gpu *asked = NULL;
	char want[128];
	int best = 0;

	for (size_t i = 0; i < gpus->n; i++)
		if (oom_same_word(gpus->items[i].name, word))
			return !strcmp(gpus->items[i].name, name);
	normalise(word, want, sizeof(want));
	for (size_t i = 0; i < gpus->n && *want; i++) {
		const int how = match(&gpus->items[i], want);

		best = how > best ? how : best;
		asked = strcmp(gpus->items[i].name, name) ? asked : &gpus->items[i];
	}
	return asked && best && match(asked, want) == best;
}

/* A known card and a number, where only the card is asked for. */
static bool is_counted(const struct oom_gpus *gpus, const char *word)
{
	struct oom_gpu_count c;
	char want[128];
	bool known = false;

	if (!oom_gpu_counted(word, &c))
		return false;
	normalise(c.name, want, sizeof(want));
	for (size_t i = 0; i < gpus->n && *want && !known; i++)
		known = match(&gpus->items[i], want) > 0;
	return known;
}

/* The size that a word ends with behind a card's name, "RTX 4090 24GB", "V100-16G", in GB; 0: none.  rest: the
 * name. */
static double size_behind(const char *word, char rest[128])
{
	static const char *const units[] = {"gib", "gb", "g"};
	size_t n = strlen(word), digits = 0, unit = 0;

	for (size_t i = 0; i < 3 && !unit; i++)
		if (n > strlen(units[i]) && !strcasecmp(word + n - strlen(units[i]), units[i]))
			unit = strlen(units[i]);
	for (n -= unit; unit && n && word[n - 1] == ' '; n--)
		;
	for (; unit && n && isdigit((unsigned char)word[n - 1]); digits++)
		n--;
	if (!digits || digits > 4 || n < 2 || n > 127 || !strchr(" -_", word[n - 1]))
		return 0;
	snprintf(rest, 128, "%.*s", (int)n - 1, word);
	return strtod(word + n, NULL);
}

/* A card's name and its size, as shops and consoles write it: among the cards of that size. */
static enum oom_status find_sized(const struct oom_gpus *gpus, const char *word, struct oom_gpu *out,
				  char note[256], struct oom_error *err)
{
	char rest[128];
	const double gb = size_behind(word, rest);
	struct oom_gpus of_size = {.items = gb > 0 ? malloc((gpus->n + 1) * sizeof(*gpus->items)) : NULL};
	enum oom_status st = OOM_ERR_UNKNOWN;
	uint64_t bytes;

	for (size_t i = 0; of_size.items && i < gpus->n; i++)
		if (gpus->items[i].memory_gb == gb)
			of_size.items[of_size.n++] = gpus->items[i];
	if (of_size.n)
		st = oom_gpu_find(&of_size, rest, out, note, err);
	free(of_size.items);
	if (!st)
		return st;
	if (!oom_parse_bytes(word, &bytes, NULL))
		return oom_error_set(err, OOM_ERR_UNKNOWN, "\"%s\" is a size, not a card: --gpu-memory \"%s\"", word, word);
	if (gb > 0 && !oom_gpu_find(gpus, rest, out, NULL, err))
		return oom_error_set(err, OOM_ERR_UNKNOWN,
				     "unknown GPU \"%s\": %s has %g GB; another capacity is said with --gpu-memory",
				     word, out->name, out->memory_gb);
	return unknown(gpus, word, err);
}

enum oom_status oom_gpu_find(const struct oom_gpus *gpus, const char *word, struct oom_gpu *out,
			     char note[256], struct oom_error *err)
{
	char want[128], names[220] = "";
	const struct oom_gpu *pick = NULL;
	size_t used = 0, found = 0, first = 0;
	bool differ = false;
	int best = 0;

	if (note)
		note[0] = 0;
	/* to the letter before the spellings: "T4G" is no T4 of some G */
	for (size_t i = 0; i < gpus->n; i++)
		if (oom_same_word(gpus->items[i].name, word)) {
			*out = gpus->items[i];
			return OOM_OK;
		}
	normalise(word, want, sizeof(want));
	for (size_t i = 0; i < gpus->n && *want; i++) {
		const int how = match(&gpus->items[i], want);

		if (how > best) {
			best = how;
			first = i;
		}
	}
	if (!best && oom_gpu_slice(gpus, word, out, note))
		return OOM_OK;
	if (!best && is_counted(gpus, word))
		return oom_error_set(err, OOM_ERR_UNKNOWN,
				     "\"%s\" is a card and a number: here the card alone, and the knobs gpus and nodes "
				     "(an axis, a column of the list) say how many",
				     word);
	if (!best)
		return find_sized(gpus, word, out, note, err);
	for (size_t i = first; i < gpus->n; i++) {
		const struct oom_gpu *g = &gpus->items[i];

		if (match(g, want) != best)
			continue;
		if (used < sizeof(names) - 1)
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", found ? ", " : "", g->name);
		found++;
		differ |= pick && pick->memory_gb != g->memory_gb;
		if (!pick || g->capacity_bytes < pick->capacity_bytes)
			pick = g;
	}
	if (differ)
		return oom_error_set(err, OOM_ERR_UNKNOWN, "\"%s\" names cards of different memory sizes: %s; say which", word, names);
	if (found > 1 && note)
		snprintf(note, 256, "\"%s\" may be %s: the smaller reported capacity is used (%s)", word, names, pick->name);
	else if (note)
		note_others(gpus, word, want, pick, note);
	*out = *pick;
	return OOM_OK;
}
