package server

import (
	"errors"
	"fmt"
	"slices"

	"plinth/internal/authz"
)

const namespaceLifecycle = "NamespaceLifecycle"

// ownAdmission are the admission plugins of the reference that are there.
var ownAdmission = []string{namespaceLifecycle, "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction"}

// admissionPlugins are those of kube-apiserver 1.37. A test compares them with the reference's help.
var admissionPlugins = []string{
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
	"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyServiceExternalIPs",
	"EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", namespaceLifecycle,
	"NodeDeclaredFeatureValidator", "NodeRestriction", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize",
	"PodGroupProtection", "PodNodeSelector", "PodResizeValidator", "PodSecurity", "PodTolerationRestriction", "PodTopologyLabels",
	"Priority", "ResourceQuota", "RuntimeClass", "ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
}

// validateAccess refuses what would protect, and is not there.
func (c *Config) validateAccess() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, mode := range c.AuthorizationModes {
		switch authz.Mode(mode) {
		case authz.AlwaysAllow, authz.AlwaysDeny, authz.Node, authz.RBAC:
		case authz.ABAC, authz.Webhook:
			refuse("--authorization-mode asks for %s, which is not there yet", mode)
		default:
			refuse("--authorization-mode: %q is none of AlwaysAllow, AlwaysDeny, Node, RBAC", mode)
		}
	}
	if len(c.AdmissionControl) > 0 && len(c.EnableAdmission)+len(c.DisableAdmission) > 0 {
		refuse("--admission-control goes with neither --enable-admission-plugins nor --disable-admission-plugins")
	}
	for flag, plugins := range map[string][]string{
		"--admission-control": c.AdmissionControl, "--enable-admission-plugins": c.EnableAdmission,
		"--disable-admission-plugins": c.DisableAdmission,
	} {
		for _, name := range plugins {
			switch {
			case !slices.Contains(admissionPlugins, name):
				refuse("%s: there is no admission plugin %q", flag, name)
			case flag == "--disable-admission-plugins":
			case slices.Contains(c.EnableAdmission, name) && slices.Contains(c.DisableAdmission, name):
				refuse("%s: %s is disabled, too", flag, name)
			case !slices.Contains(ownAdmission, name) && name != "AlwaysAdmit": // which does nothing
				refuse("%s asks for %s, which is not there yet", flag, name)
			}
		}
	}
	if !c.AllowPrivileged {
		refuse("--allow-privileged=false asks for refusing privileged containers, which is not there yet")
	}
	return errors.Join(errs...)
}

// authority decides by the modes of the configuration.
func (c *Config) authority() *authz.Authority {
	modes := make([]authz.Mode, len(c.AuthorizationModes))
	for i, mode := range c.AuthorizationModes {
		modes[i] = authz.Mode(mode)
	}
	return authz.New(modes)
}
