package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
)

// answerError is an answer that is of no use, in our own words.
type answerError struct {
	kind Kind
	text string
}

func (e *answerError) Error() string { return e.text }

var errCompressed = &answerError{Unavailable, "its answer is compressed, which was not asked for"}

// asAnswer keeps an error that is in our own words, and gives others such.
func asAnswer(err error) error {
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer
	}
	return errNotAnImage
}

// explain says what an error means. Nothing of what the registry wrote is in it: it
// could be the credentials that it was sent. And nothing that differs from one try to
// the next, such as ports and times: it becomes part of a status.
func explain(ref name.Reference, err error) *Error {
	host := hostOf(err, ref.Context().RegistryStr())
	if refusal, ok := errors.AsType[*addresspolicy.RefusedError](err); ok {
		return &Error{Kind: Refused, Detail: "registry " + ref.Context().RegistryStr() + " leads to " + refusal.Address.String() +
			": link-local addresses and those of cloud metadata are never asked"}
	}
	if refusal, ok := errors.AsType[*refusedError](err); ok {
		return &Error{Kind: Refused, Detail: "registry " + ref.Context().RegistryStr() + " " + refusal.text}
	}
	if answer, ok := errors.AsType[*answerError](err); ok {
		return &Error{Kind: answer.kind, Detail: "registry " + host + ": " + answer.text}
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return explainStatus(host, int(status), true)
	}
	if handshake, ok := errors.AsType[*transport.Error](err); ok {
		if handshake.Request != nil && handshake.Request.URL != nil && handshake.Request.URL.Host != "" {
			host = shortened(handshake.Request.URL.Host)
		}
		return explainStatus(host, handshake.StatusCode, false)
	}
	return &Error{Kind: Unavailable, Silent: isSilence(err), Detail: "registry " + host + ": " + explainNetwork(err)}
}

// explainStatus says what a status means. A 404 means that there is no such image only
// when an image was asked for.
func explainStatus(host string, status int, asked bool) *Error {
	problem := &Error{Kind: Unavailable}
	text := "it answers with status " + strconv.Itoa(status)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		problem.Kind, text = Unauthorized, "it gives no access: the image does not exist, or needs credentials"
	case status == http.StatusNotFound && asked:
		problem.Kind, text = NotFound, "it has no such image"
	case status == http.StatusNotFound:
		text = "it does not answer like a registry"
	case status == http.StatusTooManyRequests:
		text = "it has been asked too often and wants a pause"
	}
	problem.Detail = "registry " + host + ": " + text
	return problem
}

func explainNetwork(err error) string {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok && lookup.IsNotFound {
		return "its name is not known"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	switch timeout, ok := errors.AsType[net.Error](err); {
	case errors.Is(err, context.Canceled):
		return "the lookup was interrupted"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), ok && timeout.Timeout():
		return "it does not answer in time"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it speaks plain HTTP, which is used only on localhost and at private addresses"
	case strings.Contains(err.Error(), "invalid realm"): // the library has no type for it
		return "it names a token server that is not asked: one without TLS, or at a private address that is not the registry's own"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "its name cannot be looked up"
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return explainCertificate(certificate.Err)
	}
	return "its answer cannot be understood"
}

// isSilence says whether a connection could not be made, or brought no answer in time.
func isSilence(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	timeout, ok := errors.AsType[net.Error](err)
	dial, dialed := errors.AsType[*net.OpError](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout() || dialed && dial.Op == "dial"
}

func explainCertificate(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "its certificate is signed by an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for another name"
	}
	return "its certificate is not valid"
}

// hostOf is the host that an error is about: it may be another than the registry, after
// a redirect.
func hostOf(err error, registry string) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		if parsed, err := url.Parse(request.URL); err == nil && parsed.Host != "" {
			return shortened(parsed.Host)
		}
	}
	return registry
}

// shortened bounds a text that came from somewhere else.
func shortened(text string) string {
	const most = 255
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func quoted(text string) string { return strconv.Quote(shortened(text)) }
