/* What a script of one's own was told: what its options are about, by the words of their names ("--batchsize",
 * "IMS_PER_BATCH", "audio_seqlen", "--crop-size"). */
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
				 *const lengths[] = {"seqlen", "seqlength", "maxlen", "maxlength", "sequencelength", "contextlength", "blocksize", "maxtokens", "responselength", "responselen", "completionlength", "generatemaxlen", NULL},
				 *const made[] = {"new", "gen", "output", "response", "completion", "perblock", NULL},
				 *const sides[] = {"=img", "imgsize", "imagesize", "inputsize", "cropsize", "patchsize", "imgsz", "trainsize", "loadsize", "finesize",
						   "resolution", "imageresolution", "roisize", "=height", "=width", "videosize", "targetsize", "maxside",
						   "imgres", "imageres", NULL},
				 *const pixels[] = {"maxpixels", NULL}, *const tiles[] = {"size", "=tile", NULL},
				 *const counts[] = {"numenvs", "nenvs", "numenvironments", "nenvironments", "numframes", "nframes", "maxframes", "videolength",
						    "numpoints", "npoints", "=npoint", "=nrand", "numrays", "raysperbatch", "=chunk", "netchunk", "numproposals",
						    "numqueries", "numneighbors", "numneighbours", "numparticles", "numagents", "maxduration", "=frames", NULL};
	char letters[LONGEST];
	const size_t k = letters_of(name, n, letters);

	if (strstr(letters, "tile") && ends_in_one(letters, k, tiles))
		return OOM_ABOUT_TILE;
	if (ends_in_one(letters, k, batches))
		return holds_one(letters, others)      ? OOM_ABOUT_ELSE :
		       holds_one(letters, evaluations) ? OOM_ABOUT_EVAL_BATCH :
							 OOM_ABOUT_BATCH;
	if (ends_in_one(letters, k, lengths))
		return holds_one(letters, made) ? OOM_ABOUT_MADE : OOM_ABOUT_LENGTH;
	if (ends_in_one(letters, k, pixels))
		return OOM_ABOUT_PIXELS;
	if (ends_in_one(letters, k, counts))
		return OOM_ABOUT_COUNT;
	return ends_in_one(letters, k, sides) ? OOM_ABOUT_SIDE : OOM_ABOUT_ELSE;
}
