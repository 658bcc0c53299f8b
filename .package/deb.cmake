# The Debian package of the programs: ./package.sh deb. What is no program (static libraries, headers) belongs to developers, who
# install from the build folder.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvscope)
set(CPACK_PACKAGE_VENDOR "kvscope authors")
set(CPACK_PACKAGE_CONTACT "kvscope authors <maintainers@kvscope.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "recorder, simulator and explorer of sparse attention in language models")
set(CPACK_PACKAGE_DESCRIPTION "kvscope records the attention of every layer of a language model, replays methods of sparse
attention on the recording (QuoKA, Quest, SpecAttn and those they are compared with), and measures
what each keeps, misses and costs. It runs models with a method inside, draws figures, and shows
everything in a window. Two small trained models come with it.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_COMPONENTS_ALL programs)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS fonts-dejavu-core)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libgl1-mesa-dri, fonts-droid-fallback, python3-jinja2, shared-mime-info")
# Where zsh of Debian looks.
install(FILES "${PROJECT_BINARY_DIR}/analysis/cli/generated/_kvscope" DESTINATION share/zsh/vendor-completions)
include(CPack)
