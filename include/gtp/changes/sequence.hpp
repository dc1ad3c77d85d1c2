// What upstream fills in or turns off about sequences and context parallelism.
#pragma once

#include <algorithm>

#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kSequenceChanges[] = {
    changes("GTP272", "te-cp-a2a-p2p-degenerate",
            {"context_parallel_size"_opt, "cp_comm_type"_opt, "hierarchical_context_parallel_sizes"_opt},
            "a2a+p2p with a level of one rank becomes a2a or p2p",
            "A level of one rank exchanges nothing, so TransformerEngine takes the other method alone.",
            "name the method that is left",
            "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:5027",
            [](const Facts& f) -> Changes {
              const auto* levels = std::get_if<IntList>(f.find("hierarchical_context_parallel_sizes"_opt));
              const auto* types = std::get_if<StringList>(f.find("cp_comm_type"_opt));
              if (f["context_parallel_size"_opt] <= 1 || levels == nullptr || levels->size() != 2 || types == nullptr)
                return {};
              if ((*levels)[0] != 1 && (*levels)[1] != 1) return {};
              StringList left = *types;
              std::replace(left.begin(), left.end(), std::string("a2a+p2p"),
                           std::string((*levels)[0] == 1 ? "p2p" : "a2a"));
              return {{"cp_comm_type"_opt, std::move(left), "one of the two levels has one rank"}};
            }),
    changes("GTP283", "inter-doc-masking-disables-mask",
            {"dataloader_inter_document_masking"_opt, "create_attention_mask_in_dataloader"_opt},
            "the dataloader makes no attention mask beside inter-document masking",
            "The data set then carries document boundaries instead of a mask; a mask for some ranks only would break "
            "the broadcast over tensor-parallel ranks.",
            "leave create_attention_mask_in_dataloader off", "megatron/training/arguments.py:1343",
            [](const Facts& f) -> Changes {
              if (!f.on("dataloader_inter_document_masking"_opt)) return {};
              return {{"create_attention_mask_in_dataloader"_opt, false, "dataloader_inter_document_masking is on"}};
            }),
};

}  // namespace gtp::rules
