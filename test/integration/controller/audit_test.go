package controller

import (
	"flag"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

var audit = flag.Bool("audit", false, "have the API server write down what the operator asks of it")

// auditPolicy is for the manager only. Requests of other clients would be most of the log.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
  users: [` + operatorUser + `]
- level: None
`

// writeDown makes the API server write every request of the manager to a file, and
// returns its path. No metric of theirs says who has asked, and none of ours for what.
func writeDown(server *envtest.APIServer, dir string) (log string, err error) {
	policy, log := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return "", err
	}
	server.Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", log).
		Set("audit-log-maxsize", "10000") // MB, after which another file would be begun
	return log, nil
}
