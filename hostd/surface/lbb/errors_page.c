/* GET /errors: the page that doc_url points into, made from api/errors.h. */
#include "lbb.h"

static const char page_head[] =
	"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
	"<title>Error codes</title><style>body{font:16px/1.5 sans-serif;"
	"max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse"
	":collapse}td,th{text-align:left;padding:.3rem .8rem .3rem 0;"
	"vertical-align:top}tr:target{background:#ffd}</style></head><body>\n"
	"<h1>Error codes</h1>\n"
	"<p>Every error is <code>{\"error\": {type, code, message, request_id,"
	" doc_url, param?, retryable, retry_after_seconds?, retry_at_ms?,"
	" details?}}</code>. The message names the field, the value and the"
	" limit. Send a retryable request again with the same"
	" Idempotency-Key.</p>\n"
	"<table><tr><th>Code</th><th>Status</th><th>Send again</th>"
	"<th>Meaning</th></tr>\n";

void service_errors(struct request *r)
{
	const char *last = "";
	struct bytes b = {0};

	bytes_printf(&b, "%s", page_head);
	for (int i = ERR_NONE + 1; i < ERR_N; i++) {
		const struct err_info *info = err_info((enum err_code)i);

		/* Two rows of the table may share a code: one anchor. */
		bytes_printf(&b, "<tr%s%s%s><td><code>%s</code></td>",
			     strcmp(last, info->code) ? " id=\"" : "",
			     strcmp(last, info->code) ? info->code : "",
			     strcmp(last, info->code) ? "\"" : "", info->code);
		bytes_printf(&b, "<td>%d</td><td>%s</td><td>%s</td></tr>\n",
			     info->http_status,
			     info->is_retryable ? "yes" : "no", info->sentence);
		last = info->code;
	}
	bytes_printf(&b, "</table></body></html>\n");
	reply_bytes(r, 200, "text/html; charset=utf-8", &b);
}
