# The formula of Homebrew, for a tap. It was written by make release.
class Plinth < Formula
  desc "[[.Summary]]"
  homepage "[[.Home]]"
  version "[[.Version]]"
  license "[[.Licence]]"
[[range $os := .Systems]]
  on_[[$os.Brew]] do[[range $os.Platforms]]
    on_[[if eq .Arch "arm64"]]arm[[else]]intel[[end]] do
      url "[[.URL]]"
      sha256 "[[.SHA256]]"
    end[[end]]
  end
[[end]]
  def install
    bin.install "plinth"
    generate_completions_from_executable(bin/"plinth", "completion")
  end

  service do
    run [opt_bin/"plinth", "serve", "--data-dir=#{var}/lib/plinth"]
    keep_alive true
    log_path var/"log/plinth.log"
    error_log_path var/"log/plinth.log"
  end

  test do
    assert_match "plinth [[.Version]]", shell_output("#{bin}/plinth version")
  end
end
