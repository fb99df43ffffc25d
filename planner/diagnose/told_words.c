/* Advice that takes into account what the run was told: "gpu_memory_utilization lower" to who set it to 0.98 is
 * "gpu_memory_utilization 0.98 -> 0.95", and to who reads a batch of one there is no smaller one.
 *
 * Which way a number goes is said by the words themselves: "lower", "higher", "halved", "doubled". */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

static bool of_token(char ch)
{
	return isalnum((unsigned char)ch) || ch == '_' || ch == '-' || ch == '.';
}

/* Where words speak of a name: all of its token, dashes and prefix with it. */
static bool find(char *words, const char *name, char **from, char **to)
{
	for (char *p = words; *p;) {
		char *const begin = p;
		char *last;

		if (!of_token(*p)) {
			p++;
			continue;
		}
		while (*p && of_token(*p))
			p++;
		for (last = p; last > begin && last[-1] == '.'; last--)
			;
		*from = begin;
		*to = last;
		for (char *q = last; q > begin && q[-1] != '.'; q--)
			last = q - 1;
		while (last < *to && *last == '-')
			last++;
		if (*to > last && oom_told_same(last, (size_t)(*to - last), name))
			return true;
	}
	return false;
}

static bool begins(const char *p, const char *word)
{
	return !strncmp(p, word, strlen(word));
}

/* Between two things that can be done each by itself, outside of brackets; the length of what divides them. */
static size_t divides(const char *p)
{
	static const char *const marks[] = {", or ", ", and ", "; ", ", ", ": ", " and ", " or "};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (begins(p, marks[i]))
			return strlen(marks[i]);
	return 0;
}

/* The clause that "at" lies in is taken out, with what ties it to the others. */
void oom_words_drop(char *words, const char *at)
{
	char *from = words, *to, *p = words;
	int depth = 0;
	size_t n;

	for (; p < at; p++) {
		depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
		if (!depth && (n = divides(p)) != 0) {
			from = p + n;
			p += n - 1;
		}
	}
	for (to = p; *to && (depth || !divides(to)); to++)
		depth += *to == '(' ? 1 : *to == ')' ? -1 : 0;
	n = divides(to);
	if (from > words && (!n || begins(to, ": "))) {
		/* the last of several: what led to it goes as well */
		for (from--; from > words && strchr(" ,;", from[-1]); from--)
			;
		if (from - words > 3 && begins(from - 3, " or"))
			from -= 3;
		else if (from - words > 4 && begins(from - 4, " and"))
			from -= 4;
		while (from > words && strchr(" ,;", from[-1]))
			from--;
		memmove(from, to, strlen(to) + 1);
		return;
	}
	/* a reason with nothing to do before it */
	if (from == words && begins(to, ": "))
		*words = 0;
	else
		memmove(from, to + n, strlen(to + n) + 1);
}

static const struct {
	const char *word;
	int way;
} ways[] = {{"lower", -1}, {"halved", -1}, {"smaller", -1}, {"higher", 1}, {"doubled", 1}};

/* Which way a number goes: the word behind its name, up to the end of its clause. */
static int way_of(const char *to)
{
	const size_t span = strcspn(to, ",;:(");

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		const char *const p = strstr(to, ways[i].word);

		if (p && p < to + span)
			return ways[i].way;
	}
	return 0;
}

/* Behind a name: its word, and an example in brackets. */
static char *behind(char *to)
{
	to += *to == '=' && to[1] == ' ';
	for (size_t i = 0; *to == ' ' && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (begins(to + 1, ways[i].word)) {
			to += 1 + strlen(ways[i].word);
			break;
		}
	if (begins(to, " (") && isdigit((unsigned char)to[2]) && strchr(to, ')'))
		to = strchr(to, ')') + 1;
	return to;
}

/* A share gives what was missing and half a GiB, at least three hundredths; a number halves. */
static double moved(const struct oom_crash *c, const struct oom_crash_told *t, int way)
{
	const double least = oom_told_least(t), total = (double)c->bytes[OOM_CRASH_TOTAL];
	const double missing = c->known[OOM_CRASH_TRIED] ? (double)c->bytes[OOM_CRASH_TRIED] - (double)c->bytes[OOM_CRASH_FREE] : 0;
	/* beside a trainer, whose need the text does not give, three hundredths are no step */
	double step = c->trains && !c->known[OOM_CRASH_TRIED] ? 0.1 : 0.03;

	/* a quarter off each side leaves little more than half of an image; sides are multiples of 32 as a rule */
	if (oom_told_about(t) == OOM_ABOUT_SIDE && way < 0)
		return t->value < 64 ? t->value : floor(t->value * 3 / 4 / 32) * 32;
	/* llama.cpp's own default (common/common.h n_ubatch): half of more is still more than most cards have for it */
	if (way < 0 && t->value > 512 && !strcmp(oom_told_as(t), "ub"))
		return 512;
	if (least <= 0 || least >= 1)
		return way > 0 ? t->value * 2 : floor(t->value / 2) > least ? floor(t->value / 2) : least;
	if (total > 0 && missing > 0 && (missing + 536870912) / total > step)
		step = (missing + 536870912) / total;
	if (way > 0)
		return t->value < 0.9 ? 0.9 : 0.95;
	/* in hundredths, rounded down */
	step = floor(100 * (t->value - step) + 1e-9) / 100;
	return step > least ? step : least;
}

/* "NAME=1", "NAME 1": a value that the words themselves give. */
static bool has_value(const char *to, double *v)
{
	char *end;

	if (*to != '=' && *to != ' ')
		return false;
	*v = strtod(to + 1, &end);
	return end > to + 1;
}

static void apply(const struct oom_crash *c, const struct oom_crash_told *t, char *words, size_t size)
{
	char *from, *to, rest[300], said[120];
	double v, next;
	int way;

	if (!find(words, oom_told_as(t), &from, &to))
		return;
	if (oom_told_least(t) < 0) {
		oom_words_drop(words, from);
		return;
	}
	way = way_of(to);
	/* the message itself says how long it may be, which another line says */
	if (way < 0 && c->advised_tokens && c->n_causes && c->cause[0].cause == OOM_CAUSE_KV_CACHE && oom_told_same("max_model_len", strlen("max_model_len"), oom_told_as(t))) {
		oom_words_drop(words, from);
		return;
	}
	if (!way) {
		if (!has_value(to, &v))
			return;
		if (t->value <= v) {
			oom_words_drop(words, from);
			return;
		}
		/* the value that the words themselves give */
		snprintf(rest, sizeof(rest), "%s", to + 1 + strcspn(to + 1, " ,;:("));
		snprintf(from, size - (size_t)(from - words), "%s %.10g -> %.10g%s", t->name, t->value, v, rest);
		return;
	}
	next = moved(c, t, way);
	if ((way < 0 && t->value <= next) || (way > 0 && t->value >= next)) {
		oom_words_drop(words, from);
		return;
	}
	/* what a log calls it is no option: the words' own name is */
	if (*from == '-' && !strchr(t->name, '-'))
		snprintf(said, sizeof(said), "%.*s %.10g -> %.10g", (int)(to - from), from, t->value, next);
	else
		snprintf(said, sizeof(said), "%s %.10g -> %.10g", t->name, t->value, next);
	snprintf(rest, sizeof(rest), "%s", behind(to));
	snprintf(from, size - (size_t)(from - words), "%s%s", said, rest);
}

/* What levers are about. */
static const struct {
	enum oom_lever lever;
	enum oom_told_about about[4];
} abouts[] = {
	{OOM_LEVER_BATCH, {OOM_ABOUT_BATCH, OOM_ABOUT_COUNT}},
	{OOM_LEVER_REQUESTS, {OOM_ABOUT_BATCH, OOM_ABOUT_COUNT}},
	{OOM_LEVER_EVAL_BATCH, {OOM_ABOUT_EVAL_BATCH}},
	{OOM_LEVER_LENGTH, {OOM_ABOUT_MADE, OOM_ABOUT_LENGTH, OOM_ABOUT_SIDE, OOM_ABOUT_COUNT}},
	{OOM_LEVER_CONTEXT, {OOM_ABOUT_COUNT, OOM_ABOUT_LENGTH, OOM_ABOUT_SIDE}},
	{OOM_LEVER_LESS, {OOM_ABOUT_BATCH, OOM_ABOUT_COUNT, OOM_ABOUT_SIDE}},
	{OOM_LEVER_PIXELS, {OOM_ABOUT_PIXELS}},
	{OOM_LEVER_TILE_SMALL, {OOM_ABOUT_TILE}},
	{OOM_LEVER_MAPS, {OOM_ABOUT_SIDE, OOM_ABOUT_COUNT}},
	{OOM_LEVER_RAYS, {OOM_ABOUT_COUNT}},
	{OOM_LEVER_POINTS, {OOM_ABOUT_COUNT}},
};

/* The setting that the line names, without what holds it. */
static const char *line_name(const struct oom_crash *c)
{
	const char *const dot = strrchr(c->line_name, '.');

	return dot ? dot + 1 : c->line_name;
}

static bool is_about(enum oom_lever lever, enum oom_told_about about)
{
	for (size_t i = 0; i < sizeof(abouts) / sizeof(abouts[0]); i++)
		for (size_t k = 0; about != OOM_ABOUT_ELSE && abouts[i].lever == lever && k < 4; k++)
			if (abouts[i].about[k] == about)
				return true;
	return false;
}

/* "model.encode(texts, batch_size=64)": the line that failed was told so itself. */
static bool stands_in_line(const struct oom_crash *c, const struct oom_crash_told *t)
{
	const char *const at = strstr(c->own_line, t->name);

	return at && at[strlen(t->name)] == '=';
}

static const struct oom_crash_told *told_of(const struct oom_crash *c, enum oom_lever lever)
{
	const struct oom_crash_told *t = NULL;

	for (size_t i = 0; i < sizeof(abouts) / sizeof(abouts[0]); i++)
		for (size_t k = 0; abouts[i].lever == lever && (!t || moved(c, t, -1) >= t->value) && k < 4; k++)
			/* an evaluation's answers are no part of a step */
			t = abouts[i].about[k] == OOM_ABOUT_ELSE || (abouts[i].about[k] == OOM_ABOUT_MADE && !c->rolls) ? t : oom_told_first(c, abouts[i].about[k]);
	/* a printed configuration may be the one it was trained with; a command is this run's, and so is what the line reads */
	if (t && !oom_told_same(t->name, strlen(t->name), line_name(c)) && !stands_in_line(c, t) && (lever == OOM_LEVER_REQUESTS || lever == OOM_LEVER_CONTEXT || lever == OOM_LEVER_MAPS) && *t->name != '-' && !strchr(t->name, ' '))
		return NULL;
	return t;
}

/* A clip has as many frames as its command says, and they a size: the other of both, spelled in the same way. */
static const struct oom_crash_told *told_beside(const struct oom_crash *c, enum oom_lever lever, const struct oom_crash_told *t)
{
	const struct oom_crash_told *other = NULL;

	if (oom_told_about(t) == OOM_ABOUT_COUNT && (lever == OOM_LEVER_CONTEXT || lever == OOM_LEVER_LENGTH))
		other = oom_told_first(c, OOM_ABOUT_SIDE);
	return other && (*other->name == '-') == (*t->name == '-') && moved(c, other, -1) < other->value ? other : NULL;
}

/* The run's own option before words that do not name it. */
static void name_first(const struct oom_crash *c, enum oom_lever lever, char *words, size_t size)
{
	const struct oom_crash_told *const t = told_of(c, lever), *const also = t ? told_beside(c, lever, t) : NULL;
	char rest[300], second[sizeof(t->name) + 48] = "";

	if (!t && *c->line_name && !strstr(words, " -> ") && is_about(lever, oom_told_about_name(line_name(c), strlen(line_name(c)))) &&
	    !(oom_told_about_name(line_name(c), strlen(line_name(c))) == OOM_ABOUT_BATCH && (c->set & OOM_SET(OOM_LEVER_BATCH)))) {
		snprintf(rest, sizeof(rest), "%s", words);
		snprintf(words, size, "less of what the line's %s sets; %s", c->line_name, rest);
		return;
	}
	if (!t || strstr(words, " -> ") || oom_told_least(t) < 0 || moved(c, t, -1) >= t->value)
		return;
	snprintf(rest, sizeof(rest), "%s", words);
	if (also)
		snprintf(second, sizeof(second), " or %s %.10g -> %.10g", also->name, also->value, moved(c, also, -1));
	snprintf(words, size, "%s %.10g -> %.10g%s; %s", t->name, t->value, moved(c, t, -1), second, rest);
}

/* There is no smaller batch than the one that was tried: clauses that ask for it are left out, and "where it is one
 * already" is known. */
static void without_batches(char *words)
{
	static const char *const smaller[] = {"smaller batch", "smaller inference batch", "batch_size 1", "batch size 1", "batch_size=1"};
	static const char one[] = "where it is one already";
	char *p;

	for (size_t i = 0; i < sizeof(smaller) / sizeof(smaller[0]); i++) {
		if ((p = strstr(words, smaller[i])) == NULL)
			continue;
		oom_words_drop(words, p);
		/* what tied the last of a list to the others */
		if ((p = strstr(words, ", or free memory")) != NULL) {
			*p = ';';
			memmove(p + 2, p + 5, strlen(p + 5) + 1);
		}
	}
	if ((p = strstr(words, one)) != NULL) {
		const size_t n = strlen(one) + strspn(p + strlen(one), ", ");

		memmove(p, p + n, strlen(p + n) + 1);
	}
}

/* An option that makes another the bound of what is done at once: verl's dynamic batches, whose micro-batch size is not
 * read (docs/perf/perf_tuning.rst of volcengine/verl). */
static const struct {
	const char *told;
	enum oom_lever lever;
	const char *words;
} bounds[] = {
	{"use_dynamic_bsz", OOM_LEVER_BATCH, "ppo_max_token_len_per_gpu lower (no less than the longest sample): batches are dynamic, no micro-batch size is read"},
	{"use_dynamic_bsz", OOM_LEVER_LOGITS, "log_prob_max_token_len_per_gpu lower, use_fused_kernels=True: logits of all tokens are large"},
};

static const char *bound(const struct oom_crash *c, enum oom_lever lever, const char *words)
{
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
		if (bounds[i].lever == lever && oom_told(c, bounds[i].told) > 0)
			return bounds[i].words;
	if (c->rolls && lever == OOM_LEVER_LENGTH && (strstr(words, "tokenizer") || (oom_told_first(c, OOM_ABOUT_MADE) && strstr(words, "max_completion_length")) || words == oom_lever_in("torch", "torch", lever)))
		return oom_told_first(c, OOM_ABOUT_MADE) ? "a step keeps prompt and completion together (this changes what is learnt)" :
							   "a lower limit of what is generated (max_completion_length, response_length, max_new_tokens) and of prompts (this changes what is learnt)";
	/* half of what they take now */
	if (oom_told(c, "load_in_8bit") > 0 && !oom_told(c, "load_in_4bit") && (lever == OOM_LEVER_QUANT || (lever == OOM_LEVER_LOAD && strstr(words, "dtype"))))
		return "4 bits in place of 8: BitsAndBytesConfig(load_in_4bit=True)";
	/* stage 2 is there: what is left to divide are the weights */
	if (c->second_stage && lever == OOM_LEVER_SHARD && (strstr(words, "ZeRO") || strstr(words, "zero")))
		return "ZeRO-3 in place of stage 2: weights are divided among the ranks as well; offload_param: {device: cpu} where that is not enough";
	/* it is at work, with another stage than the third: that one would be a setting */
	if (c->zero && lever == OOM_LEVER_SHARD && (strstr(words, "ZeRO-2") || words == oom_lever_in("torch", "torch", lever)))
		return "ZeRO-3 (stage: 3 in zero_optimization): weights and gradients are divided among the ranks as well; offload_param: {device: cpu} where that is not enough";
	/* DeepSpeed steps with optimizers of its own: the Trainer's small ones are not made for its partitions (zero_allow_untested_optimizer) */
	if (((c->second_stage || c->zero) && lever == OOM_LEVER_OPTIMIZER && strstr(words, "zero_optimization")) ||
	    (c->zero && lever == OOM_LEVER_OPTIMIZER && (strstr(words, "8bit") || strstr(words, "8-bit"))))
		return "offload_optimizer: {device: cpu} in zero_optimization: its states leave the card";
	/* learn.microsoft.com/windows/wsl/wsl-config: memory is half of Windows's by default */
	if (c->wsl && lever == OOM_LEVER_HOST && !oom_lever_own(c, lever))
		return "memory= higher in .wslconfig (then wsl --shutdown): WSL2 has half of the machine's RAM unless it is told";
	/* disks have it: what is left in memory is what is read before, and buffers (docs/_pages/config-json.md of DeepSpeed) */
	if (c->offloads && c->disks && lever == OOM_LEVER_HOST)
		return "read the weights where they are divided (deepspeed.zero.Init(), HfDeepSpeedConfig before from_pretrained) and in 16 bits; with nvme, pin_memory: false, smaller buffer_size and max_in_cpu; else more RAM";
	/* what is offloaded lies there */
	if (c->zero && c->offloads && lever == OOM_LEVER_HOST && words == oom_lever_in("torch", "torch", lever))
		return oom_lever_in("deepspeed", "torch", lever);
	return words;
}

const char *oom_told_words(const struct oom_crash *c, enum oom_lever lever, const char *words, char *buf, size_t size)
{
	if (lever == OOM_LEVER_RECOMPUTE && *c->off && !(words && strstr(words, c->off))) {
		snprintf(buf, size, "%s True (it is off): activations are then recomputed, not kept", c->off);
		return buf;
	}
	if (!words)
		return NULL;
	snprintf(buf, size, "%s", bound(c, lever, words));
	oom_given_drop(c, buf);
	/* a training's batch of one is not its evaluation's */
	if ((c->set & OOM_SET(OOM_LEVER_BATCH)) && !(lever == OOM_LEVER_EVAL_BATCH && c->trains))
		without_batches(buf);
	for (size_t i = 0; i < c->n_told && *buf; i++)
		apply(c, &c->told[i], buf, size);
	if (*buf)
		name_first(c, lever, buf, size);
	return *buf ? buf : NULL;
}
