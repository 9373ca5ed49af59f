package issuer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
)

// problem is an answer that is of no use, in our own words.
type problem string

func (p problem) Error() string { return string(p) }

const (
	errURL        = problem("its URL is not a plain https URL")
	errCABundle   = problem("its CA bundle has no certificate in PEM format")
	errTooLarge   = problem("its answer is larger than 1 MiB")
	errMetadata   = problem("its metadata cannot be read")
	errIssuer     = problem("its metadata names another issuer")
	errNoJWKS     = problem("its metadata names no jwks_uri with https")
	errRedirects  = problem("it redirects again and again")
	errDowngrade  = problem("it redirects to a URL without https")
	errKeySet     = problem("its keys cannot be read")
	errManyKeys   = problem("it publishes more than 64 keys")
	errLargeKeys  = problem("its keys are larger than 48 KiB")
	errNoKeys     = problem("it publishes no key that can verify signatures")
	errNoIssuer   = problem("its metadata names no issuer")
	errNoCluster  = problem("the API server is not asked for keys")
	errUnexpected = problem("its answer cannot be understood")
)

// statusError is the status of an answer that has no document.
type statusError int

func (e statusError) Error() string { return "answers with status " + strconv.Itoa(int(e)) }

// classify says what an error means. It has nothing that the issuer wrote, and nothing that differs from
// one attempt to the next, such as ports and times: it becomes part of a status.
func classify(err error) string {
	if own, ok := errors.AsType[problem](err); ok {
		return string(own)
	}
	if refused, ok := errors.AsType[*addresspolicy.RefusedError](err); ok {
		return refused.Error()
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return status.Error()
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return statusError(status.Status().Code).Error()
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return classifyCertificate(certificate.Err)
	}
	return classifyNetwork(err)
}

func classifyCertificate(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "its certificate is not trusted"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for another name"
	}
	return "its certificate is not valid"
}

func classifyNetwork(err error) string {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		if lookup.IsNotFound {
			return "cannot be reached: no such host"
		}
		return "cannot be reached: its name cannot be looked up"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return "cannot be reached: " + errno.Error()
	}
	timeout, ok := errors.AsType[net.Error](err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || ok && timeout.Timeout() {
		return "does not answer in time"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return "does not speak TLS"
	}
	return string(errUnexpected)
}
