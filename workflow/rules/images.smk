# Container images, as envs/ describes them. Embedded back ends need none: only settings that ask for
# containers make a run depend on their manifests.


# The hash in a manifest, never an image's id: a rebuild of the same context changes nothing.
rule build_image:
    output:
        manifest="results/images/{image}.json",
    log:
        "logs/build_image/{image}.log",
    conda:
        "../../environment.yml"
    resources:
        docker_build=1,
    params:
        context=context_of,
    message:
        "Image {wildcards.image}"
    shell:
        "agentrl images build {wildcards.image} --manifest {output.manifest} > {log} 2>&1"


# Every image that there is, for `envs/compose.yaml` and for who wants to look.
rule images:
    input:
        expand("results/images/{image}.json", image=IMAGES),
