// Package nginxrules makes rules of the limit_req and limit_conn directives of an nginx
// configuration, and says what of it means something else or is not kept.
package nginxrules
