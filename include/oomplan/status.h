/* What can go wrong, and the words for it.
 *
 * Every function that can fail returns enum oom_status: 0, or one of the negative codes below, in which case
 * its outputs must not be read, unless the function says that they are as they were.  What the user needs to
 * know to correct the input is written to a struct oom_error of the caller's. */
#ifndef OOMPLAN_STATUS_H
#define OOMPLAN_STATUS_H

#if defined(OOM_BUILD)
#define OOM_API __attribute__((visibility("default")))
#else
#define OOM_API
#endif
#if defined(__GNUC__)
#define OOM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define OOM_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum oom_status {
	OOM_OK = 0,
	OOM_ERR_IO = -1,       /* a file cannot be opened, read or written */
	/* the text is not JSON, CSV, ... at all, or it is too large or too deeply nested */
	OOM_ERR_PARSE = -2,
	/* well-formed, but a value is missing, impossible or of the wrong kind */
	OOM_ERR_INVALID = -3,
	OOM_ERR_UNKNOWN = -4,  /* no table has this name (of a GPU, model, knob, value) */
	OOM_ERR_MEMORY = -5,   /* malloc failed */
	/* a fixed limit is exceeded (ledger rows, cells of a sweep, ...) */
	OOM_ERR_LIMIT = -6,
	/* an evaluation contradicts itself: a defect of this library, never the user's mistake */
	OOM_ERR_INTERNAL = -7,
};

/* The text of an error, for the user.  Zero-initialise it.  It owns nothing. */
struct oom_error {
	char text[480];
};

/* Words for a status: a static string, never NULL. */
OOM_API const char *oom_status_str(enum oom_status status);

/* Writes a printf-style text into err, cut to fit, and returns status.  err may be NULL. */
OOM_API enum oom_status oom_error_set(struct oom_error *err, enum oom_status status,
				      const char *fmt, ...) OOM_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
