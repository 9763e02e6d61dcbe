package nodes

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/execution"
	"plinth/internal/features"
	"plinth/internal/gotypes"
)

// maxLogError is how much of the answer of a kubelet that refuses to read a log is part of the error.
const maxLogError = 50000

// log answers pods/log.
func (n *Nodes) log(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
	var options corev1.PodLogOptions
	if err := gotypes.Query(r.URL.Query(), &options); err != nil {
		return apierr.NewBadRequest(err.Error())
	}
	n.Metrics.Log(options.InsecureSkipTLSVerifyBackend)
	if n.Features.On(features.PodLogsQuerySplitStreams) && options.Stream == nil {
		every := corev1.LogStreamAll
		options.Stream = &every
	}
	if errs := n.validateLog(&options); len(errs) > 0 {
		return apierr.NewInvalid(apierr.Type{Name: "PodLogOptions"}, asked.Name, errs)
	}
	pod, err := n.Object(r.Context(), "pods", asked.Namespace, asked.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, options.Container)
	if err != nil {
		return err
	}
	host := pod.At("spec", "nodeName").Str()
	if host == "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	k, err := n.kubelet(r.Context(), asked, host)
	if err != nil {
		return err
	}
	get := n.transports.kubelets
	if options.InsecureSkipTLSVerifyBackend {
		get = n.transports.insecure
	}
	path := fmt.Sprintf("/containerLogs/%s/%s/%s", asked.Namespace, asked.Name, container)
	err = copyLog(w, r, k.urlOf(path, n.logQuery(&options)).String(), get(), asked.Name, options.Follow)
	if failed := (*url.Error)(nil); errors.As(err, &failed) && strings.Contains(err.Error(), "x509:") {
		n.Metrics.LogUnverified() // the texts of kubelets are in other errors
	}
	return err
}

// validateLog returns the errors of the options.
func (n *Nodes) validateLog(o *corev1.PodLogOptions) (errs field.ErrorList) {
	const positive = "must be greater than 0"
	at := func(name string) *field.Path { return field.NewPath(name) }
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(at("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(at("limitBytes"), *o.LimitBytes, positive))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(at(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(at("sinceSeconds"), *o.SinceSeconds, positive))
	}
	switch {
	case o.Stream == nil:
	case !n.Features.On(features.PodLogsQuerySplitStreams):
		errs = append(errs, field.Forbidden(at("stream"), "may not be specified"))
	default:
		known := []string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout}
		if s := *o.Stream; s != known[0] && s != known[1] && s != known[2] {
			errs = append(errs, field.NotSupported(at("stream"), s, known))
		}
		if *o.Stream != corev1.LogStreamAll && o.TailLines != nil {
			errs = append(errs, field.Forbidden(at(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
		}
	}
	return errs
}

// logQuery is the query for the kubelet.
func (n *Nodes) logQuery(o *corev1.PodLogOptions) url.Values {
	query := url.Values{}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			query.Set(name, "true")
		}
	}
	for name, number := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines,
		"limitBytes": o.LimitBytes} {
		if number != nil {
			query.Set(name, strconv.FormatInt(*number, 10))
		}
	}
	if o.SinceTime != nil {
		query.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	if n.Features.On(features.PodLogsQuerySplitStreams) {
		query.Set("stream", *o.Stream)
	}
	return query
}

// copyLog requests a log from a kubelet, and sends it to the client as text or, to one that asks for it, over a
// WebSocket.
func copyLog(w http.ResponseWriter, r *http.Request, from string, transport http.RoundTripper, pod string,
	follow bool) error {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, from, nil)
	if err != nil {
		return fmt.Errorf("failed to construct request for %s, got %w", from, err)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("redirects forbidden")
	}}
	execution.AssertOutside(r.Context(), "a kubelet")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := refusedLog(answer, pod); err != nil {
		return err
	}
	if wsstream.IsWebSocketRequest(r) {
		// The client is told nothing else of an error than that the connection is closed.
		_ = wsstream.NewReaderWithLogger(klog.Logger{}, answer.Body, true, wsstream.NewDefaultReaderProtocols()).Copy(w, r)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	flusher, _ := w.(http.Flusher)
	if flusher == nil { // the writers of tests
		_, _ = io.Copy(w, answer.Body)
		return nil
	}
	flusher.Flush()
	var out io.Writer = w
	if follow {
		out = flushed{w, flusher}
	}
	// As in the reference, a log that breaks off ends as if it were complete: kubectl logs --follow reports no error
	// when a node goes away.
	_, _ = io.Copy(out, answer.Body)
	return nil
}

// refusedLog returns the error that a kubelet has answered.
func refusedLog(answer *http.Response, pod string) error {
	if answer.StatusCode >= http.StatusOK && answer.StatusCode <= http.StatusPartialContent {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxLogError))
	if err != nil {
		return apierr.NewInternal(err)
	}
	text := string(body)
	switch answer.StatusCode {
	case http.StatusInternalServerError:
		return apierr.NewInternal(errors.New(text))
	case http.StatusBadRequest:
		return apierr.NewBadRequest(text)
	}
	resource := schema.GroupResource{Resource: "pods/log"}
	return convert(apierrors.NewGenericServerResponse(answer.StatusCode, "", resource, pod, text, 0, false))
}

// convert makes an error of the reference's library one of ours.
func convert(err *apierrors.StatusError) error {
	s := err.Status()
	converted := &apierr.Error{Code: int(s.Code), Reason: apierr.Reason(s.Reason), Message: s.Message}
	if d := s.Details; d != nil {
		converted.Details = &apierr.Details{Name: d.Name, Group: d.Group, Kind: d.Kind, UID: string(d.UID),
			RetryAfterSeconds: int(d.RetryAfterSeconds)}
		for _, c := range d.Causes {
			converted.Details.Causes = append(converted.Details.Causes, apierr.Cause{Reason: string(c.Type), Message: c.Message,
				Field: c.Field})
		}
	}
	return converted
}

// flushed sends each write at once.
type flushed struct {
	io.Writer
	http.Flusher
}

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	f.Flush()
	return n, err
}
