package admission

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

func TestMain(m *testing.M) {
	options.RegisterAllAdmissionPlugins(register)
	lifecycle.Register(register)
	mutating.Register(register)
	validating.Register(register)
	register.Register(quotaReferenceName, newQuotaReference)
	klog.SetLogger(klog.Logger(logr.Discard()))
	os.Exit(m.Run())
}
