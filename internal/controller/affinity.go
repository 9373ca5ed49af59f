package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var affinityField = fieldpath.MakePathOrDie("spec", "sessionAffinity")

// yieldAffinity drops the session affinity from a Service that is about to be applied, if
// another manager has set it. The spec of an MCPServer has no field for it, so a user who
// wants another affinity sets it on the Service, and must not have to fight for it.
func yieldAffinity(config runtime.ApplyConfiguration, entries []metav1.ManagedFieldsEntry) error {
	service, ok := config.(*corev1ac.ServiceApplyConfiguration)
	if !ok || service.Spec == nil || service.Spec.SessionAffinity == nil {
		return nil
	}
	for i := range entries {
		if isOurs(&entries[i]) || entries[i].FieldsV1 == nil {
			continue
		}
		fields, err := decode(entries[i].FieldsV1)
		if err != nil {
			return err
		}
		if fields.Has(affinityField) {
			service.Spec.SessionAffinity = nil
			return nil
		}
	}
	return nil
}
