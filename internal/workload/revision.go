package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// revisionHash is how many bytes of a hash are in the name of a ControllerRevision.
const revisionHash = 5

// Revision keeps a rendered pod template. It is created and never changed; its name is
// that of its content and number, so that the same one cannot be made twice. Names of
// ControllerRevisions may be longer than the 63 characters of a server's. The cause is why
// the manager rendered it although the spec was the same; empty if the spec was new.
func Revision(server *mcpv1alpha1.MCPServer, rendered Rendered, number int64, cause string) (*appsv1.ControllerRevision, error) {
	content, err := json.Marshal(rendered)
	if err != nil {
		return nil, fmt.Errorf("encode ControllerRevision of MCPServer %s/%s: %w", server.Namespace, server.Name, err)
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s\n%d", content, number))
	revision := &appsv1.ControllerRevision{
		ObjectMeta: createdMeta(server, server.Name+"-"+hex.EncodeToString(hash[:revisionHash])),
		Data:       runtime.RawExtension{Raw: content},
		Revision:   number,
	}
	if cause != "" {
		revision.Annotations = map[string]string{mcpv1alpha1.AnnotationCause: cause}
	}
	return revision, nil
}
