/* What grows from step to step, by a line of code, by a node's name and by what people watched. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* "total += loss": each step's graph hangs on the sum, and all its activations with it. */
static bool sums_graphs(const struct oom_crash *c)
{
	static const char *const numbers[] = {".item()", ".detach()", "float(", ".data", ".cpu()", NULL};
	const char *const code = strstr(c->own_line, ": "), *const sum = code ? strstr(code, "loss += ") : NULL;

	for (size_t i = 0; sum && numbers[i]; i++)
		if (strstr(sum, numbers[i]))
			return false;
	return sum != NULL;
}

/* "my GPU keeps using more memory with each iteration": who watched it says more than one message can. */
static bool said_to_grow(const char *begin, const char *end)
{
	static const char *const said[] = {"keeps increas", "keep increas", "keeps grow", "keep grow", "keeps ris", "gradually increas", "slowly increas", "continuously increas",
					   "continues to increas", "continues to grow", "emory leak", "more and more memory", "more memory with each", "more memory with every",
					   "more memory each", "more memory every", "increases every", "increases with each", "increases with every", "increases after each",
					   "increases after every", "grows with each", "grows with every", "grows every", "been increasing", "increasing as", "increases as", "increases over time",
					   "increase over time", "grows over time", "accumulate memory", "accumulates memory", "accumulating memory", "increases gradually", "increasing gradually", "is increasing", "leakage", "is leaking", "not released", "not being released"};

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, said[i])); p++) {
			const char *const line = oom_line_begin(begin, p);

			if ((oom_text_find(line, oom_line_end(p, end), "emory") || oom_text_find(line, oom_line_end(p, end), "GPU usage") || oom_text_find(line, oom_line_end(p, end), "VRAM")) &&
			    !oom_text_find(line, p, "batch size increas") && !oom_text_find(line, p, "Warning"))
				return true;
		}
	return false;
}

/* "block1_conv2_77/convolution": a layer that was given its name, and a number because the session has that name already: its
 * model was built again and again (keras.applications and published networks number within a name, "block1_conv2"; what
 * Keras numbers by itself has no digit before: "conv2d_77"). The number; 0: none. */
static int64_t copies(const char *from, const char *end)
{
	static const char *const nodes[] = {"[[Node: ", "[[node ", "{{node "};

	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		const char *const node = oom_text_find(from, end, nodes[i]), *p = node ? node + strlen(nodes[i]) : NULL, *q;
		bool digit = false, word = false;

		if (!p)
			continue;
		for (q = p; q < end && (isalnum((unsigned char)*q) || *q == '_'); q++)
			;
		for (const char *last = q; last > p; last--)
			if (last[-1] == '_') {
				for (const char *k = p; k < last - 1; k++) {
					word |= *k == '_';
					digit |= word && isdigit((unsigned char)*k);
				}
				return digit && last < q && strspn(last, "0123456789") == (size_t)(q - last) ? (int64_t)strtol(last, NULL, 10) : 0;
			}
	}
	return 0;
}

void oom_causes_of_growth(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const int64_t n = oom_runtime_is(c, OOM_RUNTIME_GRAPH) ? copies(at, end) : 0;
	char why[160];

	if (sums_graphs(c))
		oom_cause_say(c, OOM_CAUSE_LEAK, 0.5, "a loss is added up with its graph, which keeps every step's activations if the sum outlives the step");
	else if (said_to_grow(begin, end))
		oom_cause_say(c, OOM_CAUSE_LEAK, 0.55, "the text says that memory grows from step to step");
	/* a network or two beside each other have fewer of one name */
	if (n >= 8) {
		snprintf(why, sizeof(why), "the node's name counts %" PRId64 " layers of that name: the model is built anew each time, and those before stay", n + 1);
		oom_cause_say(c, OOM_CAUSE_LEAK, 0.8, why);
	}
}
