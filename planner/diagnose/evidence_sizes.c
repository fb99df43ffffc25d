/* What a shape or a size says by itself: how many of what it is, and whose weights, states or logits. */
#include <inttypes.h>
#include <stdio.h>

#include "tables.h"

/* A shape that is printed: of TensorFlow's three and more dimensions the first is the batch, of an array of the host's as a
 * rule how many there are of something. */
static void first_dimension(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const bool graph = oom_runtime_is(c, OOM_RUNTIME_GRAPH), array = oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && oom_runtime_is(c, OOM_RUNTIME_HOST);
	char *const out = c->first_dimension && (graph || array) && c->part != OOM_PART_JOINED && !(graph && c->phase == OOM_CRASH_INIT) ? oom_evidence_slot(a) : NULL;

	if (out && c->image[0])
		snprintf(out, sizeof(a->evidence[0]), "that shape is %" PRId64 " image%s of %" PRId64 " x %" PRId64 " pixels: scaled down or cropped before it goes in, "
			 "everything behind it is smaller", c->first_dimension, c->first_dimension == 1 ? "" : "s", c->image[0], c->image[1]);
	else if (out && c->pairs)
		snprintf(out, sizeof(a->evidence[0]), "that shape is square: all pairs of %" PRId64 " things (who is joined to whom, or how far apart), which grow with the "
			 "square of their number", c->first_dimension);
	else if (out && graph && c->first_dimension > 1 && c->first_dimension < 4096 && c->bytes[OOM_CRASH_TRIED] / (uint64_t)c->first_dimension >= (uint64_t)64 << 20)
		snprintf(out, sizeof(a->evidence[0]), "the first number of that shape, %" PRId64 ", is as a rule the batch on this device (of a detector, all regions of its images): one of them takes %.2f GiB of it",
			 c->first_dimension, (double)c->bytes[OOM_CRASH_TRIED] / (double)c->first_dimension / 1073741824);
	else if (out)
		snprintf(out, sizeof(a->evidence[0]), graph ? "the first number of that shape, %" PRId64 ", is as a rule the batch on this device (of a detector, all regions of its images)" :
				"the first number of that shape, %" PRId64 ", is as a rule a count (samples, steps, entries of a buffer): so many are held at once",
			 c->first_dimension);
}

/* What an optimizer computes has the shape of a weight. */
static void of_weight(const struct oom_crash *c, struct oom_crash_answer *a)
{
	char *const out = c->matrix[0] && oom_runtime_is(c, OOM_RUNTIME_GRAPH) && c->phase == OOM_CRASH_OPTIMIZER ? oom_evidence_slot(a) : NULL, *kernel;

	if (c->kernel && oom_runtime_is(c, OOM_RUNTIME_GRAPH) && (kernel = oom_evidence_slot(a)) != NULL)
		snprintf(kernel, sizeof(a->evidence[0]), "that shape is one of a convolution's weights, rows and columns of its kernel first: a model, its gradients or states are made, whatever the batch");
	if (out)
		snprintf(out, sizeof(a->evidence[0]), "that shape is one layer's weight: %" PRId64 " x %" PRId64 " are %.1f MiB in fp32, its gradient and Adam's two moments three times as much beside it, whatever the batch",
			 c->matrix[0], c->matrix[1], 4.0 * (double)c->matrix[0] * (double)c->matrix[1] / 1048576);
}

/* Rows of the vocabulary: a family's number of entries divides what was asked for. */
static void tokens(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const double vocabulary = (double)c->vocabulary, tried = (double)c->bytes[OOM_CRASH_TRIED], rows = vocabulary > 0 ? tried / 4 / vocabulary : 0,
		     batch = oom_told(c, "per_device_train_batch_size");
	const size_t size = sizeof(a->evidence[0]);
	const struct oom_crash_told *const length = oom_told_first(c, OOM_ABOUT_LENGTH);
	char *out, each[60] = "";
	unsigned bytes;

	if (c->part != OOM_PART_LOGITS || rows < 256 || rows > 4e6 || !(out = oom_evidence_slot(a)))
		return;
	if (oom_logits_rows(c, &bytes) > 0) {
		snprintf(out, size, "%.0f x %s %.0f x %" PRIu64 " words of the vocabulary, by the model's name, x %u bytes = %.2f GiB: the request is these logits, as long as the run allows",
			 oom_logits_rows(c, &bytes) / length->value, length->name, length->value, c->vocabulary, bytes, tried / 1073741824);
		return;
	}
	if (batch > 1)
		snprintf(each, sizeof(each), ", %.0f of each of the batch's %.0f", rows / batch, batch);
	snprintf(out, size, "with %" PRIu64 " words in the vocabulary, by the model's name, it is the fp32 logits of about %.0f tokens%s (of 16 bits: twice as many)",
		 c->vocabulary, rows, each);
}

/* DeepSpeed lays a rank's parameters out flat: a state is as large as all of them in fp32, and Adam's second as its first. */
static void states(const struct oom_crash *c, enum oom_crash_work work, struct oom_crash_answer *a)
{
	const double gib = 1073741824.0, tried = (double)c->bytes[OOM_CRASH_TRIED];
	unsigned each;
	const unsigned ranks = oom_copy_of_parameters(c, &each);
	char *out;

	if (ranks && (out = oom_evidence_slot(a)) != NULL) {
		char part[40] = "";

		if (ranks > 1)
			snprintf(part, sizeof(part), " / %u ranks", ranks);
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, x %u bytes%s = %.2f GiB: the request is %s of the weights in one piece (gradients, fp32 weights or a state), "
			 "which no batch and no length makes smaller", (double)c->parameters / 1e9, each, part, (double)c->parameters * each / ranks / gib, ranks > 1 ? "this rank's part of a copy" : "a whole copy");
		return;
	}
	out = c->part == OOM_PART_STATES && c->zero && tried >= gib / 4 ? oom_evidence_slot(a) : NULL;
	if (!out && oom_copies_all(c) && work == OOM_WORK_TRAINING && (out = oom_evidence_slot(a)) != NULL) {
		snprintf(out, sizeof(a->evidence[0]), "as much was asked for at once as is held in all: the weights once more in one piece (gradients, a cast, states laid out flat); %.0f M numbers of 16 bits", tried / 2e6);
		return;
	}
	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%.2f GiB are one fp32 number for each of %.0f M parameters of this rank; Adam keeps two, the fp32 weights are a third: %.2f GiB together",
			 tried / gib, tried / 4e6, 3 * tried / gib);
}

/* Gradients of 4 bytes and two moments of 4, where the trained parameters are 32 bits: the most that they take. */
static void trained_part(const struct oom_crash *c, enum oom_crash_work work, struct oom_crash_answer *a)
{
	char *const out = work == OOM_WORK_TRAINING && c->of_parameters > c->trained && c->trained > c->of_parameters / 10 ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%.2f of %.2f B parameters are trained, %.0f %%, more than adapters are: their gradients and AdamW's states take up to 12 bytes each, %.1f GiB",
			 (double)c->trained / 1e9, (double)c->of_parameters / 1e9, 100.0 * (double)c->trained / (double)c->of_parameters, 12.0 * (double)c->trained / 1073741824);
}

void oom_observe_shape(const struct oom_crash *c, struct oom_crash_answer *a)
{
	first_dimension(c, a);
	of_weight(c, a);
}

void oom_observe_parameters(const struct oom_crash *c, enum oom_crash_work work, struct oom_crash_answer *a)
{
	tokens(c, a);
	states(c, work, a);
	trained_part(c, work, a);
}
