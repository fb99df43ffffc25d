/* What a script of one's own was told: what its options are about, by the words of their names ("--batchsize",
 * "IMS_PER_BATCH", "audio_seqlen", "--crop-size"), and the batch that its log prints. */
#include <ctype.h>
#include <string.h>

#include "answer.h"

enum { LONGEST = 48 };

/* In lower case and without what joins its words. */
static size_t letters_of(const char *name, size_t n, char *out)
{
	size_t k = 0;

	for (size_t i = 0; i < n && k + 1 < LONGEST; i++)
		if (isalnum((unsigned char)name[i]))
			out[k++] = (char)tolower((unsigned char)name[i]);
	out[k] = 0;
	return k;
}

static bool ends_in_one(const char *letters, size_t k, const char *const *words)
{
	for (; *words; words++) {
		const size_t w = strlen(*words);

		if (**words == '=' ? !strcmp(letters, *words + 1) : k >= w && !strcmp(letters + k - w, *words))
			return true;
	}
	return false;
}

static bool holds_one(const char *letters, const char *const *words)
{
	for (; *words; words++)
		if (strstr(letters, *words))
			return true;
	return false;
}

/* "=": the whole name. */
enum oom_told_about oom_told_about_name(const char *name, size_t n)
{
	static const char *const batches[] = {"batchsize", "=batch", "=bs", "=bsz", "batchsz", "batchsizepergpu", "batchsizepercard", "batchsizeperdevice",
					      "batchpergpu", "perbatch", "samplespergpu", "imgspergpu", "imagespergpu", "imgpergpu", NULL},
				 *const evaluations[] = {"eval", "val", "test", "dev", "infer", NULL},
				 /* of all cards and steps, of a server's queue, or of a part that is not the model */
				 *const others[] = {"global", "total", "max", "num", "vae", "sample", "prefill", "rollout", "sw", "embed", "effective", NULL},
				 *const lengths[] = {"seqlen", "seqlength", "maxlen", "maxlength", "sequencelength", "contextlength", "blocksize", "maxtokens", NULL},
				 *const made[] = {"new", "gen", "output", "response", "completion", "perblock", NULL},
				 *const sides[] = {"=img", "imgsize", "imagesize", "inputsize", "cropsize", "patchsize", "imgsz", "trainsize", "loadsize", "finesize",
						   "resolution", "imageresolution", "roisize", "=height", "=width", "videosize", "targetsize", "maxside",
						   "imgres", "imageres", NULL},
				 *const pixels[] = {"maxpixels", NULL},
				 *const counts[] = {"numenvs", "nenvs", "numenvironments", "nenvironments", "numframes", "nframes", "maxframes", "videolength",
						    "numpoints", "npoints", "=npoint", "=nrand", "numrays", "raysperbatch", "=chunk", "netchunk", "numproposals",
						    "numqueries", "numneighbors", "numneighbours", "numparticles", "numagents", "maxduration", "=frames", NULL};
	char letters[LONGEST];
	const size_t k = letters_of(name, n, letters);

	if (ends_in_one(letters, k, batches))
		return holds_one(letters, others)      ? OOM_ABOUT_ELSE :
		       holds_one(letters, evaluations) ? OOM_ABOUT_EVAL_BATCH :
							 OOM_ABOUT_BATCH;
	if (ends_in_one(letters, k, lengths))
		return holds_one(letters, made) ? OOM_ABOUT_ELSE : OOM_ABOUT_LENGTH;
	if (ends_in_one(letters, k, pixels))
		return OOM_ABOUT_PIXELS;
	if (ends_in_one(letters, k, counts))
		return OOM_ABOUT_COUNT;
	return ends_in_one(letters, k, sides) ? OOM_ABOUT_SIDE : OOM_ABOUT_ELSE;
}

/* "Instantaneous batch size per device = 8", "batch size: 16", "Training batch size is 188": a log's line, or what people
 * write; not that of all devices, and not an evaluation's. */
static void printed_batch(struct oom_crash *c, const char *line, const char *size, const char *stop)
{
	static const char *const others[] = {"alid", "eval", "Eval", "est ", "otal", "lobal", "ffective", "max", "Max"};
	const char *p = size;
	char number[16];
	size_t n;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (oom_text_find(line, size, others[i]))
			return;
	while (p < stop && p - size < 60 && !isdigit((unsigned char)*p) && *p != '.' && *p != ',' && *p != ';' && *p != '\n')
		p++;
	for (n = 0; p + n < stop && n + 1 < sizeof(number) && isdigit((unsigned char)p[n]); n++)
		number[n] = p[n];
	number[n] = 0;
	if (n)
		oom_told_note(c, "batch size", "batch size", strlen("batch size"), number);
}

void oom_told_printed(struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const spelled[] = {"atch size", "atchsize\xe8", "atchsize \xe8", "atch_size\xe8", "atch_size \xe8", "atchsize to", "atch_size to", "atchsize of",
					      "atch_size of", "atchsize is", "atch_size is"};
	const struct oom_crash_told *t;

	/* the rest is people's: "batchsize" before a word or a sign of Chinese */
	for (size_t i = 0; i < sizeof(spelled) / sizeof(spelled[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, spelled[i])); p++)
			printed_batch(c, oom_line_begin(begin, p), p, oom_line_end(p, end));
	t = oom_told_first(c, OOM_ABOUT_BATCH);
	if (t && t->value <= 1)
		c->set |= OOM_SET(OOM_LEVER_BATCH);
}
